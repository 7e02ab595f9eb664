"""The missing line and the wrong line."""

import re

import pytest
import torch

from regard.derivations import DERIVATIONS, Derivation, Inputs, Step, WorstCase
from regard.derivations.line_exercises import missing_line, wrong_line

CHEAP = ("product-mean", "three-attentions", "concatenation", "backpropagation-through-time")


@pytest.mark.parametrize("name", CHEAP)
def test_one_line_is_missing_and_the_others_are_not_equal(name: str) -> None:
    exercise = missing_line(DERIVATIONS[name], "a key")
    assert exercise is not None
    (right,) = (line for line in exercise.choices if line.right)
    tex = [step.tex for step in DERIVATIONS[name].steps]
    at = tex.index(exercise.before[-1])
    assert right.tex in tex[at + 1 :]
    assert right.reason.startswith("Equal to the line before on random inputs")
    assert len({line.tex for line in exercise.choices}) == 4
    for line in exercise.choices:
        if not line.right:
            assert line.tex not in tex
            assert float(re.findall(r"differ by (\S+) times", line.reason)[0]) > 0


@pytest.mark.parametrize("name", CHEAP)
def test_one_line_is_wrong_and_the_right_one_is_told(name: str) -> None:
    exercise = wrong_line(DERIVATIONS[name], "a key")
    assert exercise is not None
    tex = [step.tex for step in DERIVATIONS[name].steps]
    (wrong,) = (line for line in exercise.lines if line.right)
    assert wrong.tex not in tex
    told = wrong.reason.partition("The right line is $")[2].removesuffix("$.")
    assert any(line.endswith(told) for line in tex)
    assert all(line.tex in tex for line in exercise.lines if not line.right)


def test_exercises_depend_on_the_key_alone() -> None:
    derivation = DERIVATIONS["concatenation"]
    made = [missing_line(derivation, key) for key in ("a", "a", "b")]
    assert made[0] == made[1] != made[2]


def test_a_derivation_without_equal_lines_has_none() -> None:
    step = Step("a", "Given.")
    worst = WorstCase("0", lambda: Inputs(a=torch.zeros(1).double()))
    bound = Step(r"\leq 2 a", "More.", worst=worst)
    derivation = Derivation(
        name="bound",
        title="A bound",
        given="",
        draw=lambda g: Inputs(a=torch.rand(1, generator=g).double()),
        steps=(step, bound),
    )
    assert missing_line(derivation, "a key") is None
    assert wrong_line(derivation, "a key") is None
