"""Sigmoid attention."""

import math

import torch

from regard.attention import Sigmoid
from regard.attention.config import LayerShape
from regard.attention.score_config import SigmoidConfig

Q, K, V = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(0)).double()


def test_equal_scores_sum_to_about_one_at_the_context_length() -> None:
    n = 64
    shape = LayerShape(n_heads=1, n_kv_heads=1, n_value_heads=1, d_head=8, context_length=n)
    attend = SigmoidConfig().build(shape)
    weights = attend.weights(torch.zeros(1, 1, n, 8), torch.ones(1, 1, n, 8))
    total = float(weights[0, 0, 0].sum())
    assert math.isclose(total, n / (n + 1), rel_tol=1e-6)  # n σ(−log n)


def test_a_bias_of_its_own_is_kept() -> None:
    shape = LayerShape(n_heads=1, n_kv_heads=1, n_value_heads=1, d_head=8, context_length=64)
    attend = SigmoidConfig(bias=0.5).build(shape)
    assert isinstance(attend, Sigmoid)
    assert attend.bias == 0.5
