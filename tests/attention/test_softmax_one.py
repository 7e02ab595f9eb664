"""Softmax with one more in the denominator."""

import pytest
import torch
from torch import Tensor

from regard.attention import Mask, Softmax, SoftmaxOne

Q, K, V = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(0)).double()
CAUSAL = Mask.causal()


def with_sinks(values: list[float]) -> SoftmaxOne:
    attend = SoftmaxOne(heads=len(values)).double()
    assert attend.sinks is not None
    attend.sinks.data = torch.tensor(values).double()
    return attend


def test_without_learned_sinks_they_are_zero() -> None:
    assert torch.equal(SoftmaxOne()(Q, K, V), with_sinks([0.0] * 4)(Q, K, V))
    weights = SoftmaxOne().weights(Q, K)
    assert float(weights.sum(-1).max()) < 1


def null_token(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :, :1]), x], 2)


def test_it_is_softmax_with_a_key_and_a_value_of_zeros() -> None:
    seen = Mask.dense(torch.cat([torch.ones(7, 1), torch.ones(7, 7).tril()], 1).bool()[None, None])
    expected = Softmax()(Q, null_token(K), null_token(V), mask=seen)
    torch.testing.assert_close(SoftmaxOne()(Q, K, V, mask=CAUSAL), expected)


def test_each_head_learns_its_sink() -> None:
    attend = with_sinks([-1.0, 0.0, 1.0, 2.0])
    attend(Q, K, V).sum().backward()
    assert attend.sinks is not None
    assert attend.sinks.grad is not None
    assert bool(attend.sinks.grad.all())
    query, key = (x[:, :1].expand(-1, 4, -1, -1) for x in (Q, K))
    left = 1 - attend.weights(query, key).sum(-1)
    assert bool((left.diff(dim=1) > 0).all())


@pytest.mark.parametrize("scores", [-500.0, 500.0])
def test_large_scores_stay_finite(scores: float) -> None:
    out = SoftmaxOne()(Q, K * scores, V, mask=CAUSAL)
    assert bool(out.isfinite().all())
