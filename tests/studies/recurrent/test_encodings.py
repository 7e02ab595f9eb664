"""Positions at the input."""

from pathlib import Path

import pytest
import torch

from regard.positions import OneHot
from regard.studies.finding import Verdict
from regard.studies.recurrent.casing import Rows, Setup, body_of
from regard.studies.recurrent.encoder_decoder import (
    ONE_HOT,
    SINES,
    WITHOUT,
    add_positions,
    encodings,
    judged_encodings,
    one_hot_is_learned,
    placed_run,
)

RIGHT = dict.fromkeys((WITHOUT, ONE_HOT, SINES), (1.0, 0.5))
TURNED = torch.tensor([0.5, 0.4, 0.0])


@pytest.mark.parametrize("seed", range(5))
def test_a_one_hot_position_is_a_learned_one(seed: int) -> None:
    assert [number.name for number in one_hot_is_learned(seed) if not number.holds] == []


def test_the_claim_needs_every_measurement() -> None:
    assert all(number.holds for number in judged_encodings(RIGHT, TURNED, seen=2))
    worse = RIGHT | {SINES: (0.2, 0.0)}
    assert not all(number.holds for number in judged_encodings(worse, TURNED, seen=2))
    for change in (torch.zeros(3), torch.ones(3)):  # no column learned, as the course says; or all
        assert not all(number.holds for number in judged_encodings(RIGHT, change, seen=2))


def test_positions_stand_beside_the_embeddings() -> None:
    setup = Setup(attention=True, width=64, longest=8)
    run = setup.plan().run
    rows = Rows.of(run, setup.texts(8, 3))
    embedding = body_of(run).encoder.embedding
    before = embedding(rows.source)
    add_positions(run, OneHot(length=20, d=20))
    after = embedding(rows.source)
    assert after[..., :-20].equal(before[..., :-20])
    assert after[..., -20:].equal(torch.eye(20)[:12].expand(3, -1, -1))


@pytest.mark.slow
def test_a_kept_run_gets_its_positions_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    setup = Setup(attention=True, width=64, longest=8, steps=1)
    rows = Rows.of(setup.plan().run, setup.texts(8, 3))
    encoding = OneHot(length=20, d=20)
    hidden = [
        body_of(placed_run(setup, ONE_HOT, encoding)).encoder(rows.source, rows.lengths)
        for _ in range(2)
    ]
    plain = body_of(setup.run()).encoder(rows.source, rows.lengths)
    # Exact: the same operations on the same shapes.
    assert hidden[0].equal(hidden[1])
    assert not hidden[0].equal(plain)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


@pytest.mark.slow
def test_a_batch_may_be_padded_beyond_the_last_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert encodings(longest=9, width=64, steps=2, cell="lstm").verdict is Verdict.FAILS


@pytest.mark.findings
def test_the_verdict(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path_factory.getbasetemp() / "casing"  # all studies ask the same networks
    monkeypatch.setenv("REGARD_CACHE", str(shared))
    assert encodings().verdict is Verdict.HOLDS
    assert encodings(steps=1).verdict is Verdict.FAILS
