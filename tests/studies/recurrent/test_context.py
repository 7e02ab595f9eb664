"""Memory of recurrent states; predictions in one direction and in both."""

from math import log
from pathlib import Path

import numpy as np
import pytest

from regard.data import IGNORE
from regard.studies.finding import Verdict
from regard.studies.recurrent.context import (
    ATTENTION,
    DISTANCES,
    LENGTH,
    RNN,
    WINDOW,
    draw_rows,
    judged_moods,
    judged_windows,
    one_way_or_both,
)
from tiny_studies import broken, measured, needs_every_measurement


def test_each_sign_asks_for_the_symbol_at_its_distance() -> None:
    rows = draw_rows(50, 8, 3)
    for ids, labels in zip(*rows, strict=True):
        assert (labels[::2] == IGNORE).all()
        for place in range(1, LENGTH, 2):
            source = place + 1 - DISTANCES[ids[place] - 8]
            assert labels[place] == (ids[source] if source >= 0 else IGNORE)
    assert ((rows[1] < 8) & (rows[0][:, ::2].max() < 8)).all()


def test_all_distances_are_asked_equally_often() -> None:
    asked = draw_rows(2000, 8, 3)[0][:, 1::2] - 8
    counts = np.bincount(asked.ravel(), minlength=len(DISTANCES))
    expected = asked.size / len(DISTANCES)
    assert np.abs(counts - expected).max() < 5 * expected**0.5


def test_fixed_windows_needs_every_measurement() -> None:
    guess = log(8)
    flat, none = dict.fromkeys(DISTANCES, 0.01), dict.fromkeys(DISTANCES, guess)
    fading = {d: guess * d / max(DISTANCES) for d in DISTANCES}
    far, near = ({d: 0.01 if d <= most else guess for d in DISTANCES} for most in (8, 4))
    found = {WINDOW: {2: far}, RNN: {5: near, 10: fading}, ATTENTION: {2: flat}}
    others = (
        {WINDOW: {2: flat}},
        {WINDOW: {2: fading}},
        {RNN: {5: near, 10: flat}},
        {RNN: {5: fading, 10: fading}},
        {RNN: {5: near, 10: none}},
        {ATTENTION: {2: fading}},
    )
    needs_every_measurement(
        judged_windows, (found, 8, 8), *((found | other, 8, 8) for other in others)
    )
    assert broken(judged_windows(found | {WINDOW: {2: flat}}, window=32, symbols=8)) == [
        "advantage of attention over window: distance 32 minus distance 2"
    ]


def test_one_way_or_both_needs_every_measurement() -> None:
    right = {(time, way): 1.0 for time in ("past", "future") for way in ("one way", "both ways")}
    right["future", "one way"] = 0.75
    clairvoyant = right | {("future", "one way"): 0.9}
    needs_every_measurement(judged_moods, (right, 1e-6, 1), (clairvoyant, 1e-6, 1), (right, 0.1, 1))
    same = judged_moods(dict.fromkeys(right, 1.0), 1e-6, ahead=0)
    assert broken(same) == ["future: both ways minus one way"], "nothing is gained"


def test_without_training_both_directions_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    finding = one_way_or_both(steps=1, days=12)
    assert finding.verdict is Verdict.FAILS
    assert measured(finding)["past, one way: error of scores read day by day"] < 1e-4
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 4


def test_a_window_of_one_loses_the_same_at_all_distances() -> None:
    guess = log(8)
    learned = dict(zip(DISTANCES, (0.01, 0.1, 0.3, 1.0, 1.8), strict=True))
    found = {
        WINDOW: {2: dict.fromkeys(DISTANCES, guess)},
        RNN: {1: dict.fromkeys(DISTANCES, guess), 9: learned},
        ATTENTION: {2: dict.fromkeys(DISTANCES, 0.01)},
    }
    assert broken(judged_windows(found, 1, 8)) == []
