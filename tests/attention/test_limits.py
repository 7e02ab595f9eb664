"""Limits in which mechanisms are softmax, and sinks, which are no bias of a key."""

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
    Softmax,
    SoftmaxOne,
    TopK,
)
from regard.attention.contract_cases import TableBias
from regard.attention.top_k import IndexedTopK

N, CAUSAL = 9, Mask.causal()
Q, K, V, SECOND = (normal(2, 4, N, 8, seed=seed) for seed in range(4))
INDEX = {
    "index_query": normal(2, 3, N, 5, seed=4),
    "index_key": normal(2, 1, N, 5, seed=5),
    "index_weight": normal(2, 3, N, seed=6),
}
NEVER = {"log_forget": torch.zeros(2, 4, N).double()}
FAINT = {"second_query": SECOND, "share": torch.full((2, 4, N), 1e-20).double()}
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
    close(attend(Q, K, V, mask=CAUSAL, gates=gates), Softmax()(Q, K, V, mask=CAUSAL))
    close(attend.weights(Q, K, mask=CAUSAL, gates=gates), Softmax().weights(Q, K, mask=CAUSAL))


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
