"""Data, metric and parent."""

from pathlib import Path

import pytest

from regard.errors import UserError
from regard.studies.finding import Verdict
from regard.studies.knowledge.absent import (
    ANSWERED,
    CHILD,
    IN_DATA,
    ORPHAN,
    PROBABILITY,
    bias,
    born_elsewhere,
    judged_shares,
)
from regard.studies.knowledge.fictional import homes, small_world

BIASED = {IN_DATA: 0.3, PROBABILITY: 0.28, ANSWERED: 0.6, CHILD: 0.8, ORPHAN: 0.05}


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_shares(BIASED))
    for change, which in (
        ({PROBABILITY: 0.05}, 0),
        ({ANSWERED: 0.3}, 1),
        ({CHILD: 0.3}, 2),
    ):
        numbers = judged_shares(BIASED | change)
        assert [number.holds for number in numbers] == [i != which for i in range(3)]


def test_the_childs_questions_are_about_people_born_elsewhere() -> None:
    world = small_world(160, 0.8, 0)
    chosen, home = born_elsewhere(world), homes(world)
    assert chosen
    assert all(p.group == "qa_train" and p.place != home[p.name] for p in chosen)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changed",
    [
        "people=120",
        "correlation=0.3",
        "seed=3",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("people=600", "correlation=0")),
    ],
)
def test_any_world_is_measured(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place of the world that no text mentions isn't in the vocabulary."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert bias.with_texts([changed, "steps=1"]).verdict is Verdict.FAILS


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["correlation=1", "people=80"])
def test_nobody_born_elsewhere_stops_in_one_line(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"bias: people: of .* nobody in QA training") as error:
        bias.with_texts([changed])
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_verdict() -> None:
    assert bias().verdict is Verdict.HOLDS


@pytest.mark.slow
def test_without_a_bias_the_parent_hands_on_none() -> None:
    finding = bias(correlation=0.0)
    assert [number.holds for number in finding.numbers] == [True, True, False]
