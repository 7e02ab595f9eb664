"""Banks of heads and convolutions."""

import pytest
import torch

from regard.studies.finding import Verdict
from regard.studies.trained_models.several_heads import (
    bank,
    bank_error,
    feature_weights,
    heads_as_filters,
    lookup,
)


def test_the_verdict() -> None:
    assert heads_as_filters().verdict is Verdict.HOLDS
    assert heads_as_filters(taps=4, width=2, n=30, seed=13).verdict is Verdict.HOLDS


@pytest.mark.parametrize("changed", [{"width": 1}, {"taps": 9, "width": 2}])
def test_taps_of_low_rank_need_fewer_heads(changed: dict[str, int]) -> None:
    finding = heads_as_filters(**changed)
    assert finding.verdict is Verdict.FAILS
    assert [n.name for n in finding.numbers if not n.holds] == [
        "k − 1 heads: least relative error, by the truncated SVD"
    ]


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
