"""Every line of every derivation holds, is shown as MathML, and would fail if it were wrong."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from statistics import NormalDist

import pytest
import torch

from regard.derivations import DERIVATIONS, TOLERANCE, Derivation, Inputs, Step
from regard.derivations.derivation import Draw
from regard.derivations.tex_parser import tokens
from regard.derivations.tex_value import last_side
from regard.derivations.two_heads import TWO_HEAD_OUTPUT

SEEDS = range(10, 14)

each_derivation = pytest.mark.parametrize("derivation", DERIVATIONS.values(), ids=DERIVATIONS)


def draw(derivation: Derivation, seed: int) -> Inputs:
    return derivation.draw(torch.Generator().manual_seed(seed))


@cache
def draws(derivation: Derivation) -> tuple[Draw, ...]:
    """Inputs whose lines are evaluated once for all tests."""
    return tuple(map(derivation.drawn, SEEDS))


def related(derivation: Derivation) -> Iterator[tuple[Step, Step]]:
    """Each line that is checked, after the line before."""
    for before, step in zip(derivation.steps, derivation.steps[1:], strict=False):
        if step.relation:
            yield before, step


def changed(step: Step, factor: str = "", term: str = "") -> Step:
    """The line with a factor before its last side, and a term behind."""
    side = last_side(step.tex)
    right = rf" {factor} \left( {step.tex[side]} \right) {term}"
    return replace(step, tex=step.tex[: side.start] + right + step.tex[side.stop :])


@each_derivation
def test_every_line_holds(derivation: Derivation) -> None:
    for seed, drawn in zip(SEEDS, draws(derivation), strict=True):
        errors = derivation.errors(drawn)
        assert len(errors) == len(derivation.steps)
        for step, error in zip(derivation.steps, errors, strict=True):
            assert error <= TOLERANCE, f"seed {seed}: {step.tex}"


@each_derivation
def test_a_line_that_is_a_little_off_fails(derivation: Derivation) -> None:
    drawn = draws(derivation)[0]
    for before, step in related(derivation):
        if step.relation == "=":
            assert a_little_off(step, drawn).error(before, drawn) > 10 * TOLERANCE, step.tex


def a_little_off(step: Step, drawn: Draw) -> Step:
    if step.value is not None:
        value = 1.000001 * step.value(drawn.inputs)
        return replace(step, value=lambda _: value)
    off = changed(step, r"\frac{1000001}{10^6}")
    zeros = off.error(step, drawn) == 0
    return changed(step, term=r"+ \frac{1}{10^6}") if zeros else off


def stricter(step: Step) -> Step:
    """The line with 0.8 of its bound: 6.4 for 8; so 1/24 for 1/16 and 2h/n for 3h/n fail too."""
    if step.remainder is not None:
        bound = step.remainder
        return replace(step, remainder=lambda x: 0.8 * bound(x))
    return changed(step, r"\frac{4}{5}" if step.relation == "≤" else r"\frac{5}{4}")


def test_bounds_are_reached() -> None:
    """A bound holds for its worst case too, and 0.8 times the bound doesn't."""
    for derivation in DERIVATIONS.values():
        for before, step in related(derivation):
            if step.worst is not None:
                worst = derivation.worst(step.worst)
                assert step.error(before, worst) <= TOLERANCE, step.tex
                assert 0.8 < step.worst.share <= step.reached(before, worst), step.tex
                assert stricter(step).error(before, worst) > TOLERANCE, step.tex


def test_lines_are_evaluated_separately() -> None:
    """No line is compared with itself: neither its TeX nor its code is that of the line before."""
    for derivation in DERIVATIONS.values():
        for before, step in related(derivation):
            assert tokens(before.tex.lstrip("= ")) != tokens(step.tex.lstrip("= "))
            assert step.value is None or code(before) != code(step), step.tex


def code(step: Step) -> object:
    """What the value of a line runs: names, constants and instructions."""
    made = getattr(step.value, "__code__", None)
    return step.value if made is None else (made.co_code, made.co_consts, made.co_names)


def test_every_line_has_a_reason() -> None:
    for derivation in DERIVATIONS.values():
        assert len(derivation.given) > 40
        assert derivation.title[0].isupper()
        for step in derivation.steps:
            assert step.reason.rstrip("$")[-1] in ".:", step.reason


def test_inputs_are_double_precision_and_reproducible() -> None:
    for derivation in DERIVATIONS.values():
        first, again = draw(derivation, 1), draw(derivation, 1)
        for name, tensor in first.items():
            assert tensor.dtype in (torch.float64, torch.int64), name
            assert torch.equal(tensor, again[name])
        if derivation.name != "products-by-hand":
            drawn = [draw(derivation, seed) for seed in SEEDS]
            shapes = {tuple((name, x[name].shape) for name in x) for x in drawn}
            values = {tuple(float(x[name].double().sum()) for name in x) for x in drawn}
            assert len(shapes) > 1
            assert len(values) > 1


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("attention-complexity", ("n", "h")),
        ("three-attentions", ("M", "N", "k")),
        ("attention-from-svd", ("n", "h", "k")),
        ("attention-by-two-projections", ("n", "h", "k")),
        ("product-mean", ("h",)),
        ("concatenation", ("d",)),
        ("relative-bias", ("T", "m")),
        ("receptive-field", ("k", "n")),
        ("gaussian-kernel", ("N", "D", "M")),
        ("random-features-cost", ("N", "D", "M", "R")),
        ("causal-sums", ("N", "E", "M")),
        ("positive-features", ("d", "m")),
    ],
)
def test_a_size_of_one_is_allowed(name: str, sizes: tuple[str, ...]) -> None:
    derivation = DERIVATIONS[name]
    for size in sizes:
        seed = next(seed for seed in range(200) if int(draw(derivation, seed)[size]) == 1)
        assert max(derivation.check(seed)) <= TOLERANCE


def test_the_product_that_prose_names_is_that_of_the_formula() -> None:
    (step,) = (one for one in TWO_HEAD_OUTPUT.steps if "the product is about" in one.reason)
    p = NormalDist().cdf(2**0.5)
    assert f"the product is about {p * (1 - p):.3f}" in step.reason
