"""The study `word-order`."""

from typing import get_args

import pytest

from regard.positions.config import PositionsConfig
from regard.studies.finding import Verdict
from regard.studies.positions.permutation import KINDS, sentences, word_order


@pytest.mark.slow
def test_the_verdict_with_rotary_positions_and_not_with_alibi_or_none() -> None:
    finding = word_order(positions="rotary")
    assert finding.verdict is Verdict.HOLDS
    measured = {number.name: number.measured for number in finding.numbers}
    assert measured["accuracy with positions (alibi)"] < 0.9
    assert measured["accuracy without positions"] < 0.9


@pytest.mark.slow
def test_the_premises() -> None:
    assert word_order(training=20).verdict is Verdict.FAILS, "too little to learn from"
    assert word_order(positions="rotary", steps=1).verdict is Verdict.FAILS, "too short a training"


def test_every_encoding_is_tried() -> None:
    kinds = {kind.__struct_config__.tag for kind in get_args(PositionsConfig)}
    assert set(KINDS) == kinds


def test_only_alibi_fails_with_the_stored_training() -> None:
    stored = word_order.stored_result()
    shares = {
        kind: stored.row(f"accuracy with positions ({kind})").values[0]
        for kind in KINDS
        if kind != "none"
    }
    assert {kind for kind, share in shares.items() if share is None or share < 0.9} == {"alibi"}


def test_pairs_stand_together_and_were_never_seen() -> None:
    (known, known_subjects), (new, new_subjects) = sentences(400, seed=5)
    turned = new[:, [0, 4, 2, 3, 1]]
    assert turned[0::2].equal(new[1::2])
    assert not known_subjects.equal(new_subjects[: len(known_subjects)])
    seen = {tuple(row) for row in known.tolist()}
    assert len(seen) == 400
    assert not seen & {tuple(row) for row in new.tolist()}
