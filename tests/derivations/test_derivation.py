"""A line is checked by the sign that it begins with."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.derivations import Derivation, Inputs, Step, WorstCase
from regard.derivations.derivation import Draw
from regard.derivations.tex_algebra import Unsupported
from regard.derivations.tex_scope import Scope

INPUTS = Inputs(a=torch.tensor([1.0, -2.0], dtype=torch.float64))
DRAW = Draw(INPUTS, Scope({"a": INPUTS.a, "b": 2 * INPUTS.a}, {"i": range(1, 3)}))
WORST = WorstCase("these", lambda: INPUTS, share=0.9)
FIRST = Step("a", "the first line")


def error(tex: str, value: Callable[[Inputs], Tensor], remainder: float | None = None) -> float:
    bound = None if remainder is None else lambda x: torch.full_like(x.a, remainder)
    worst = None if tex[0] == "=" else WORST
    return Step(tex, "because", value, remainder=bound, worst=worst).error(FIRST, DRAW)


@pytest.mark.parametrize(
    ("tex", "relation"),
    [("= a", "="), (r"\leq a", "≤"), (r"\geq a", "≥"), ("a = b", ""), (r"\left( a \right)", "")],
)
def test_the_sign_is_the_relation(tex: str, relation: str) -> None:
    worst = None if relation in ("", "=") else WORST
    assert Step(tex, "because", worst=worst).relation == relation


def test_equality_is_relative_to_the_largest_entry() -> None:
    assert error("= a", lambda x: x.a.clone()) == 0
    assert error("= a", lambda x: x.a + 2e-6) == pytest.approx(1e-6)


def test_inequalities_have_a_direction() -> None:
    assert error(r"\leq b", lambda x: x.a + 1) == 0
    assert error(r"\leq b", lambda x: x.a - 1) == pytest.approx(1 / 3)
    assert error(r"\geq b", lambda x: x.a - 1) == 0
    assert error(r"\geq b", lambda x: x.a + 1) == pytest.approx(1 / 2)


def test_an_approximation_keeps_to_its_remainder() -> None:
    assert error(r"\approx b", lambda x: x.a + 0.1, remainder=0.1 + 1e-12) == 0
    assert error(r"\approx b", lambda x: x.a + 0.3, remainder=0.1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "value",
    [
        lambda x: x.a.sum(),
        lambda x: x.a[None],
        lambda x: x.a * torch.nan,
        lambda x: x.a * torch.inf,
    ],
)
def test_other_shapes_and_values_that_are_not_finite_fail(
    value: Callable[[Inputs], Tensor],
) -> None:
    assert error("= b", value) == float("inf")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("b", "= 2 a", 0),
        ("b", "= a", 0.5),
        ("b", "= b_i", float("inf")),
        ("a_i", "= b_i - a_i", 0),
        ("a_i - a_i", "= 0", 0),
        ("a - a", "= 0", 0),
        ("a_i", "= a_1", 1.5),
        ("3", "= 3 a_i / a_i", float("inf")),
    ],
)
def test_lines_are_read_and_compared(first: str, second: str, expected: float) -> None:
    """A line may lose an index of the line before, but not gain one."""
    assert Step(second, "because").error(Step(first, "given"), DRAW) == expected


def test_a_line_is_equal_to_its_left_side_and_to_the_library() -> None:
    assert Step("b = 2 a", "both").own_error(DRAW) == 0
    assert Step("b = a", "not").own_error(DRAW) == 0.5
    assert Step("c = a", "a name").own_error(DRAW) == 0
    assert Step("b", "the same", library=lambda x: 2 * x.a).own_error(DRAW) == 0
    assert Step("b", "another", library=lambda x: x.a).own_error(DRAW) == 0.5
    assert Step("b", "a shape", library=lambda x: 2 * x.a[None]).own_error(DRAW) == float("inf")


def test_a_line_that_cannot_be_read_needs_a_value() -> None:
    with pytest.raises(Unsupported, match="isn't an input"):
        Step("c", "unknown").values(DRAW)
    assert Step("c", "known", lambda x: x.a).error(FIRST, DRAW) == 0


def test_a_remainder_belongs_to_an_approximation() -> None:
    with pytest.raises(ValueError, match="remainder"):
        Step(r"\approx b", "no bound", worst=WORST)
    with pytest.raises(ValueError, match="remainder"):
        Step("= b", "exact", remainder=lambda x: x.a)


def test_a_worst_case_belongs_to_a_bound() -> None:
    with pytest.raises(ValueError, match="worst case"):
        Step(r"\leq b", "none")
    with pytest.raises(ValueError, match="worst case"):
        Step("= b", "exact", worst=WORST)


@pytest.mark.parametrize(
    ("tex", "value", "share"),
    [
        (r"\leq b", lambda x: 2 * x.a.abs(), 0.5),
        (r"\geq b", lambda x: x.a / 4, 0.25),
        (r"\approx b", lambda x: x.a + torch.tensor([0.0, 0.3]), 0.75),
    ],
)
def test_the_share_of_a_bound_is_that_of_its_worst_entry(
    tex: str, value: Callable[[Inputs], Tensor], share: float
) -> None:
    remainder = (lambda x: torch.full_like(x.a, 0.4)) if tex.startswith(r"\approx") else None
    step = Step(tex, "because", value, remainder=remainder, worst=WORST)
    assert step.reached(FIRST, DRAW) == pytest.approx(share)


def test_the_text_of_a_bound_has_its_worst_case() -> None:
    bound = Step(r"\leq b", "More.", worst=WORST)
    assert bound.text == "More. At least 90 % of the bound is reached for these."
    assert FIRST.text == "the first line"


def test_each_chain_begins_without_a_sign() -> None:
    lines = (
        FIRST,
        Step("= 2 a - a", "the same"),
        Step("5 a", "another chain"),
        Step("= 4 a", "wrong"),
    )
    derivation = Derivation("test", "Test", "$a$ given.", lambda generator: INPUTS, lines)
    assert [len(chain) for chain in derivation.chains] == [2, 2]
    assert derivation.check(seed=0) == pytest.approx((0, 0, 0, 0.2))
    with pytest.raises(ValueError, match="first line"):
        Derivation("test", "Test", "", lambda generator: INPUTS, lines[1:])


def test_inputs_are_read_by_name() -> None:
    assert INPUTS.a is INPUTS["a"]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = INPUTS.nonsense
