"""A line is checked by the sign that it begins with."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.derivations import Derivation, Inputs, Step, Worst

INPUTS = Inputs(a=torch.tensor([1.0, -2.0], dtype=torch.float64))
WORST = Worst("these", lambda: INPUTS, share=0.9)


def first(value: Callable[[Inputs], Tensor] = lambda x: x.a) -> Step:
    return Step("a", value, "the first line")


def error(tex: str, value: Callable[[Inputs], Tensor], remainder: float | None = None) -> float:
    bound = None if remainder is None else lambda x: torch.full_like(x.a, remainder)
    step = Step(tex, value, "because", remainder=bound, worst=None if tex[0] == "=" else WORST)
    return step.error(first(), INPUTS)


@pytest.mark.parametrize(
    ("tex", "relation"),
    [("= a", "="), (r"\leq a", "≤"), (r"\geq a", "≥"), ("a = b", ""), (r"\left( a \right)", "")],
)
def test_the_sign_is_the_relation(tex: str, relation: str) -> None:
    worst = None if relation in ("", "=") else WORST
    assert Step(tex, lambda x: x.a, "because", worst=worst).relation == relation


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


def test_zeros_are_equal() -> None:
    zero = first(lambda x: 0 * x.a)
    assert Step("= 0", lambda x: torch.zeros_like(x.a), "").error(zero, INPUTS) == 0


def test_a_remainder_belongs_to_an_approximation() -> None:
    with pytest.raises(ValueError, match="remainder"):
        Step(r"\approx b", lambda x: x.a, "no bound", worst=WORST)
    with pytest.raises(ValueError, match="remainder"):
        Step("= b", lambda x: x.a, "exact", remainder=lambda x: x.a)


def test_a_worst_case_belongs_to_a_bound() -> None:
    with pytest.raises(ValueError, match="worst case"):
        Step(r"\leq b", lambda x: x.a, "none")
    with pytest.raises(ValueError, match="worst case"):
        Step("= b", lambda x: x.a, "exact", worst=WORST)


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
    step = Step(tex, value, "because", remainder=remainder, worst=WORST)
    assert step.reached(first()) == pytest.approx(share)


def test_the_text_of_a_bound_has_its_worst_case() -> None:
    bound = Step(r"\leq b", lambda x: x.a, "More.", worst=WORST)
    assert bound.text == "More. At least 90 % of the bound is reached for these."
    assert first().text == "the first line"


def test_each_chain_begins_without_a_sign() -> None:
    lines = (
        first(),
        Step("= a", lambda x: x.a.clone(), "the same"),
        Step("b", lambda x: 5 * x.a, "another chain"),
        Step("= 4a", lambda x: 4 * x.a, "wrong"),
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
