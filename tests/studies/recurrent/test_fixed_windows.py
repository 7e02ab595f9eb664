"""The study `fixed-windows`."""

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
    fixed_windows,
    judged_windows,
)

GUESS = log(8)
FLAT = dict.fromkeys(DISTANCES, 0.01)
BLIND = {d: 0.01 if d <= 8 else GUESS for d in DISTANCES}
FADING = {d: GUESS * d / max(DISTANCES) for d in DISTANCES}
NEAR = {d: 0.01 if d <= 4 else GUESS for d in DISTANCES}
WELL = {WINDOW: {2: BLIND}, RNN: {5: NEAR, 10: FADING}, ATTENTION: {2: FLAT}}


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


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_windows(WELL, window=8, symbols=8))


@pytest.mark.parametrize(
    ("model", "losses"),
    [
        (WINDOW, {2: FLAT}),
        (WINDOW, {2: FADING}),
        (RNN, {5: NEAR, 10: FLAT}),
        (RNN, {5: FADING, 10: FADING}),
        (RNN, {5: NEAR, 10: dict.fromkeys(DISTANCES, GUESS)}),
        (ATTENTION, {2: FADING}),
    ],
)
def test_other_losses_would_refute_it(model: str, losses: dict[int, dict[int, float]]) -> None:
    assert not all(n.holds for n in judged_windows(WELL | {model: losses}, window=8, symbols=8))


def test_a_window_that_holds_all_misses_nothing() -> None:
    all_seen = WELL | {WINDOW: {2: FLAT}}
    failed = [n.name for n in judged_windows(all_seen, window=32, symbols=8) if not n.holds]
    assert failed == ["advantage of attention over window: distance 32 minus distance 2"]


@pytest.mark.parametrize("cell", ["vanilla", "gru"])
def test_nothing_is_remembered_without_training(
    cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    finding = fixed_windows(cell=cell, steps=2, width=8)  # type: ignore[arg-type]
    assert finding.verdict is Verdict.FAILS
    assert finding.table is not None
    assert [row[:2] for row in finding.table.rows] == [
        (WINDOW, "1"),
        (RNN, "1"),
        (RNN, "2"),
        (ATTENTION, "1"),
    ]


@pytest.mark.findings
def test_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert fixed_windows().verdict is Verdict.HOLDS
