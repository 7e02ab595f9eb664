"""Numbers, bounds and verdicts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.studies.figure import Chart, Figure
from regard.studies.finding import (
    Evidence,
    Measurement,
    Verdict,
    at_least,
    at_most,
    equal,
    informational,
    table,
)

FINITE = st.floats(-1e6, 1e6)
FIGURE = Figure(panels=[Chart()], caption="nothing")


@given(FINITE, FINITE, st.floats(0, 10))
def test_a_number_holds_within_its_bounds(measured: float, predicted: float, within: float) -> None:
    inside = predicted - within <= measured <= predicted + within
    assert equal("x", measured, predicted, within).holds == inside
    assert at_least("x", measured, predicted).holds == (measured >= predicted)
    assert at_most("x", measured, predicted).holds == (measured <= predicted)
    assert informational("x", measured).holds


@pytest.mark.parametrize(
    "number", [equal("x", math.nan, 0), at_most("x", math.nan, 1), informational("x", math.nan)]
)
def test_nan_never_holds(number: Measurement) -> None:
    assert not number.holds


def test_the_verdict_follows_from_the_numbers() -> None:
    good, bad = at_most("x", 0, 1), at_most("x", 2, 1)

    def verdict(numbers: tuple[Measurement, ...], beyond: tuple[Measurement, ...] = ()) -> Verdict:
        return Evidence(numbers=numbers, outside_condition=beyond, figure=FIGURE).verdict

    assert verdict((good, good)) == verdict((good,), (good,)) == Verdict.HOLDS
    assert verdict((good,), (good, bad)) == Verdict.CONDITIONAL
    assert verdict((good, bad)) == verdict((bad,), (good,)) == Verdict.FAILS


def test_what_is_wanted_is_said() -> None:
    assert equal("x", 3, 3).expected == "= 3"
    assert equal("x", 3, 2, within=0.5).expected == "2 ± 0.5"
    assert at_least("x", 3, 2).expected == "≥ 2"
    assert at_most("x", 3, 2).expected == "≤ 2"
    assert Measurement(name="x", measured=1, low=0, high=2).expected == "≥ 0 and ≤ 2"
    assert informational("x", 3).expected == ""


def test_a_table_shows_four_digits() -> None:
    assert table(["x", "y"], [(1 / 3, "a"), (2, 3)]).rows == (("0.3333", "a"), ("2", "3"))
