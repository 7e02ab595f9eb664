"""One head and two."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import IGNORE
from regard.studies.finding import Verdict
from regard.studies.trained_models.several_heads import (
    judged_pairs,
    rows_of,
    two_heads,
)


@given(st.integers(3, 7), st.integers(0, 1000))
def test_one_place_determines_at_most_2k_answers(k: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    first, second, elsewhere = draw.random(k), draw.random(k), draw.random() * 0.5
    told = {
        max((first[a], 1, a), (second[b], 2, b), (elsewhere, 3, 0))[1:]
        for a, b in product(range(k), repeat=2)
    }
    assert len(told) <= 2 * k, "what the head tells, and so the right answers"
    bound, _ = judged_pairs("argmax", {("argmax", 1): 0.0, ("argmax", 2): 1.0}, k, 10**12)
    assert bound.high == pytest.approx(2 / k, abs=1e-5)


def test_labels_name_the_two_tokens_before() -> None:
    ids, labels = rows_of(5, 20, 0)
    assert (labels[:, :2] == IGNORE).all()
    for i in range(2, ids.shape[1]):
        assert (labels[:, i] == 5 * ids[:, i - 1] + ids[:, i - 2]).all()


def test_the_claim_needs_every_measurement() -> None:
    shares = {
        ("argmax", 1): 0.2, ("argmax", 2): 1.0, ("softmax", 1): 1.0, ("softmax", 2): 1.0
    }  # fmt: skip
    assert all(number.holds for number in judged_pairs("argmax", shares, 8, 5000))
    assert not all(number.holds for number in judged_pairs("softmax", shares, 8, 5000))
    assert not all(n.holds for n in judged_pairs("argmax", shares | {("argmax", 2): 0.3}, 8, 5000))
    assert not all(n.holds for n in judged_pairs("argmax", shares | {("argmax", 1): 0.3}, 8, 5000))


@pytest.mark.slow
def test_the_verdict() -> None:
    finding = two_heads()
    assert finding.verdict is Verdict.CONDITIONAL
    assert not finding.outside_condition[0].holds, "one head of softmax does it"


def test_hardly_trained_two_heads_find_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert two_heads(k=4, steps=1).verdict is Verdict.FAILS
