"""The study `one-way-or-both`."""

from pathlib import Path

import pytest

from regard.studies.finding import Verdict
from regard.studies.recurrent.context import judged_moods, one_way_or_both

RIGHT = {
    ("past", "one way"): 1.0,
    ("past", "both ways"): 1.0,
    ("future", "one way"): 0.75,
    ("future", "both ways"): 1.0,
}


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_moods(RIGHT, 1e-6, ahead=1))
    clairvoyant = RIGHT | {("future", "one way"): 0.9}
    assert not all(n.holds for n in judged_moods(clairvoyant, 1e-6, ahead=1))
    assert not all(n.holds for n in judged_moods(RIGHT, 0.1, ahead=1))


def test_with_no_day_ahead_nothing_is_gained() -> None:
    same = dict.fromkeys(RIGHT, 1.0)
    failed = [n.name for n in judged_moods(same, 1e-6, ahead=0) if not n.holds]
    assert failed == ["future: both ways minus one way"]


def test_without_training_both_directions_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    finding = one_way_or_both(steps=1, days=12)
    assert finding.verdict is Verdict.FAILS
    measured = {number.name: number.measured for number in finding.numbers}
    assert measured["past, one way: error of scores read day by day"] < 1e-4
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 4


@pytest.mark.slow
def test_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert one_way_or_both().verdict is Verdict.HOLDS
    assert one_way_or_both(ahead=0).verdict is Verdict.FAILS, "the past is enough"
