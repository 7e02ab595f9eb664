"""Heads as filters, and two heads."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import IGNORE
from regard.studies.trained_models.several_heads import (
    bank,
    bank_error,
    feature_weights,
    judged_pairs,
    lookup,
    rows_of,
)
from tiny_studies import needs_every_measurement


def test_a_weak_bias_is_no_convolution() -> None:
    draw = torch.Generator().manual_seed(0)
    weights = torch.randn(3, 2, 2, generator=draw, dtype=torch.float64)
    x = torch.randn(20, 2, generator=draw, dtype=torch.float64)
    assert bank_error(weights, x, 60.0) < 1e-12
    assert bank_error(weights, x, 2.0) > 0.1


def test_the_bank_is_the_sum_over_taps() -> None:
    draw = torch.Generator().manual_seed(1)
    weights = torch.randn(2, 3, 2, generator=draw, dtype=torch.float64)
    x = torch.randn(9, 2, generator=draw, dtype=torch.float64)
    by_hand = [weights[0] @ x[i - 1] + weights[1] @ x[i] for i in range(2, 7)]
    assert torch.allclose(bank(x, weights, 60.0), torch.stack(by_hand), atol=1e-12)


def test_the_lower_score_is_muted() -> None:
    assert feature_weights(0.0)[0] == pytest.approx(0.5)
    assert feature_weights(10.0)[0] < 1e-4
    assert feature_weights(10.0)[1] > 0.99


def test_a_convolution_finds_one_place_in_n() -> None:
    by_head, by_convolution = lookup(20, torch.Generator().manual_seed(2))
    assert by_head > 0.999
    assert by_convolution == pytest.approx(1 / 20, abs=0.02)


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


def test_two_heads_needs_every_measurement() -> None:
    shares = {(kind, heads): 1.0 for kind in ("argmax", "softmax") for heads in (1, 2)}
    shares["argmax", 1] = 0.2
    needs_every_measurement(
        judged_pairs,
        ("argmax", shares, 8, 5000),
        ("softmax", shares, 8, 5000),
        ("argmax", shares | {("argmax", 2): 0.3}, 8, 5000),
        ("argmax", shares | {("argmax", 1): 0.3}, 8, 5000),
    )
