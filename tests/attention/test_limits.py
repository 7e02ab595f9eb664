"""The family of softmax: limits in which it is softmax, sinks, sigmoids, and long rows."""

import pytest
import torch
from attention_cases import normal
from torch import Tensor, nn

from regard.attention import (
    Attention,
    Differential,
    DifferentialV1,
    Forgetting,
    Mask,
    MoBA,
    Sigmoid,
    Softmax,
    SoftmaxOne,
    StickBreaking,
    TopK,
)
from regard.attention.config import LayerShape
from regard.attention.contract_cases import TableBias
from regard.attention.score_config import SigmoidConfig
from regard.attention.top_k import IndexedTopK

N, CAUSAL = 9, Mask.causal()
Q, K, V, SECOND = (normal(2, 4, N, 8, seed=seed) for seed in range(4))
INDEX = {
    "index_query": normal(2, 3, N, 5, seed=4),
    "index_key": normal(2, 1, N, 5, seed=5),
    "index_weight": normal(2, 3, N, seed=6),
}
NEVER = {"log_forget": torch.zeros(2, 4, N).double()}
FAINT = {"share": torch.full((2, 4, N), 1e-20).double()}
ROUNDINGS = 64 * torch.finfo(torch.float64).eps


def sunk(values: list[float]) -> SoftmaxOne:
    attend = SoftmaxOne(heads=4).double()
    assert attend.sinks is not None
    attend.sinks.data = torch.tensor(values).double()
    return attend


LIMITS: dict[str, tuple[Attention, dict[str, Tensor]]] = {
    "log f = 0": (Forgetting(heads=4), NEVER),
    "sink -inf": (sunk([float("-inf")] * 4), {}),
    "share of 1e-20": (Differential(), FAINT),
    "k = n": (TopK(k=N), {}),
    "k > n": (TopK(k=1000), {}),
    "indexer, k = n": (IndexedTopK(k=N, heads=3, d=5), INDEX),
    "one block": (MoBA(block_size=N, blocks=1), {}),
    "all blocks": (MoBA(block_size=2, blocks=5), {}),
}


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=ROUNDINGS, atol=ROUNDINGS)


@pytest.mark.parametrize("limit", LIMITS)
@torch.no_grad()
def test_a_limit_is_softmax_to_rounding(limit: str) -> None:
    attend, gates = LIMITS[limit]
    query = Q if attend.queries_per_head == 1 else torch.stack([Q, SECOND], 2).flatten(1, 2)
    close(attend(query, K, V, mask=CAUSAL, gates=gates), Softmax()(Q, K, V, mask=CAUSAL))
    close(attend.weights(query, K, mask=CAUSAL, gates=gates), Softmax().weights(Q, K, mask=CAUSAL))


@torch.no_grad()
def test_version_1_without_lambda_is_softmax_of_the_first_halves() -> None:
    attend = DifferentialV1(d=8, lambda_init=0.0).double()
    for parameter in attend.parameters():
        nn.init.zeros_(parameter)  # λ = 1 - 1 + 0
    expected = Softmax()(Q[..., :4], K[..., :4], V, mask=CAUSAL)
    close(attend(Q, K, V, mask=CAUSAL), expected)


@torch.no_grad()
def test_a_sink_is_a_key_of_its_score_and_no_bias_of_the_first() -> None:
    """Such a bias moves weight to the first value; a sink takes it away (vllm#49815)."""
    sinks = torch.tensor([-1.0, 0.5, 1.0, 2.0]).double()
    scores = (Q @ K.mT / 8**0.5).masked_fill(~torch.ones(N, N).tril().bool(), float("-inf"))
    null = sinks[:, None, None].expand(2, 4, N, 1)
    weights = sunk(sinks.tolist()).weights(Q, K, mask=CAUSAL)
    close(weights, torch.cat([scores, null], -1).softmax(-1)[..., :-1])
    table = torch.zeros(4, N, N).double()
    table[:, :, 0] = sinks[:, None]
    biased = Softmax().weights(Q, K, mask=CAUSAL, bias=TableBias(table))
    close(biased.sum(-1), torch.ones(2, 4, N).double())
    assert float((biased - weights).abs().amax((0, 2, 3)).min()) > 0.1


def null_token(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :, :1]), x], 2)


def test_without_learned_sinks_a_key_and_a_value_of_zeros_are_added() -> None:
    seen = torch.cat([torch.ones(N, 1), torch.ones(N, N).tril()], 1).bool()[None, None]
    expected = Softmax()(Q, null_token(K), null_token(V), mask=Mask.dense(seen))
    close(SoftmaxOne()(Q, K, V, mask=CAUSAL), expected)


def test_each_head_learns_its_sink() -> None:
    attend = sunk([-1.0, 0.0, 1.0, 2.0])
    attend(Q, K, V).sum().backward()
    assert attend.sinks is not None
    assert attend.sinks.grad is not None
    assert bool(attend.sinks.grad.all())


def test_large_scores_beside_a_sink_stay_finite() -> None:
    for scores in (-500.0, 500.0):
        assert bool(SoftmaxOne()(Q, K * scores, V, mask=CAUSAL).isfinite().all()), scores


def test_sigmoids_have_a_bias_of_their_own_or_that_of_the_context_length() -> None:
    """−log n, with which equal scores sum to n σ(−log n)."""
    n = 64
    shape = LayerShape(n_heads=1, n_kv_heads=1, n_value_heads=1, d_head=8, context_length=n)
    attend = SigmoidConfig().build(shape)
    weights = attend.weights(torch.zeros(1, 1, n, 8), torch.ones(1, 1, n, 8))
    assert float(weights[0, 0, 0].sum()) == pytest.approx(n / (n + 1), rel=1e-6)
    own = SigmoidConfig(bias=0.5).build(shape)
    assert isinstance(own, Sigmoid)
    assert own.bias == 0.5


def test_long_rows_of_a_stick_in_bfloat16_are_as_exact_as_their_inputs() -> None:
    q, k, v = (normal(1, 2, 1000, 16, seed=seed, dtype=torch.bfloat16) for seed in range(3))
    narrow = StickBreaking()(q, k, v, mask=CAUSAL)
    wide = StickBreaking()(q.double(), k.double(), v.double(), mask=CAUSAL)
    eps = torch.finfo(torch.bfloat16).eps
    assert float((narrow.double() - wide).abs().max()) <= 4 * eps * float(v.abs().max())
