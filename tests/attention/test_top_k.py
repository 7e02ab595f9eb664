"""Softmax over the highest scores, or those of an indexer."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.gradcheck import gradcheck

from regard.attention import Attention, Mask, MoBA, Softmax, TopK, chosen_keys
from regard.attention.config import CHECKED_SHAPE
from regard.attention.gating import IndexerGating
from regard.attention.score_config import TopKConfig
from regard.attention.top_k import IndexedTopK
from regard.errors import UnsupportedError
from regard.models.builders import make_model
from regard.models.config import EncoderDecoderConfig, TargetConfig
from regard.models.head_config import LMHeadConfig
from tiny_models import tiny_model

Q, K, V = torch.randn(3, 2, 4, 9, 8, generator=torch.Generator().manual_seed(0)).double()
CAUSAL = Mask.causal()


def test_equal_keys_have_equal_weights_in_any_order_of_rounding() -> None:
    same = K[:, :, :1].expand(-1, -1, 9, -1)
    weights = TopK(k=2).weights(Q.float(), same.float())
    torch.testing.assert_close(weights, torch.full((2, 4, 9, 9), 1 / 9))


@pytest.mark.parametrize("attend", [TopK(k=3), MoBA(block_size=3, blocks=2)])
def test_the_gradient_is_that_of_the_output_where_no_scores_are_equal(attend: Attention) -> None:
    inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
    assert gradcheck(lambda *x: attend(*x, mask=CAUSAL), inputs, fast_mode=True)


# An indexer

GATES = {
    "index_query": torch.randn(2, 3, 9, 5, generator=torch.Generator().manual_seed(1)).double(),
    "index_key": torch.randn(2, 1, 9, 5, generator=torch.Generator().manual_seed(2)).double(),
    "index_weight": torch.rand(2, 3, 9, generator=torch.Generator().manual_seed(3)).double(),
}


def indexed(k: int = 3) -> IndexedTopK:
    return IndexedTopK(k=k, heads=3, d=5)


@pytest.mark.parametrize(("n", "k"), [(48, 3), (49, 3), (200, 3), (325, 20)])
def test_long_rows_need_only_the_scores_of_the_chosen_keys(
    n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first part of a row has fewer keys than are chosen."""
    rng = torch.Generator().manual_seed(n)
    query = torch.randn(2, 4, n, 8, generator=rng).double()
    key, value = torch.randn(2, 2, 2, n, 8, generator=rng).double()
    gates = {
        "index_query": torch.randn(2, 3, n, 5, generator=rng).double(),
        "index_key": torch.randn(2, 1, n, 5, generator=rng).double(),
        "index_weight": torch.randn(2, 3, n, generator=rng).double(),  # < 0: many keys score 0
    }
    attend = partial(indexed(k), query, key, value, mask=CAUSAL, gates=gates)
    dense = attend()
    monkeypatch.setattr(chosen_keys, "SCORES", 1)
    monkeypatch.setattr(chosen_keys, "KEYS", 50)
    with torch.no_grad(), monkeypatch.context() as patch:
        patch.setattr(IndexedTopK, "_among", None)  # which makes n × n masks
        torch.testing.assert_close(attend(), dense)


def losses(
    attend: IndexedTopK,
    inputs: list[Tensor],
    gates: dict[str, Tensor],
    lengths: tuple[int, int] = (9, 0),
) -> Tensor:
    query, key, value = inputs
    attend.auxiliary_losses = []
    mask = CAUSAL & Mask.lengths(torch.tensor(lengths))
    attend.train()(query, key, value, mask=mask, gates=gates)
    (loss,) = attend.auxiliary_losses
    return loss


def test_the_loss_is_the_divergence_from_dense_attention_and_trains_the_indexer_alone() -> None:
    inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
    gates = {name: gate.clone().requires_grad_() for name, gate in GATES.items()}
    loss = losses(indexed(), inputs, gates)
    dense = Softmax().weights(Q, K, mask=CAUSAL).mean(1)[0]
    products = (GATES["index_query"] @ GATES["index_key"].mT).clamp_min(0)
    scores = (products * GATES["index_weight"][..., None]).sum(1)[0]
    expected = 0.0
    for t in range(9):  # the second row has no keys
        of_index = scores[t, : t + 1].softmax(0)
        expected += float((dense[t, : t + 1] * (dense[t, : t + 1] / of_index).log()).sum())
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    found = torch.autograd.grad(loss, [*inputs, *gates.values()], allow_unused=True)
    assert all(gradient is None for gradient in found[:3])
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in found[3:])


def test_the_output_has_no_gradient_for_the_indexer() -> None:
    gates = {name: gate.clone().requires_grad_() for name, gate in GATES.items()}
    assert not indexed()(Q, K, V, mask=CAUSAL, gates=gates).requires_grad


def test_evaluation_computes_no_loss() -> None:
    attend = indexed().eval()
    attend.auxiliary_losses = []
    attend(Q, K, V, mask=CAUSAL, gates=GATES)
    assert attend.auxiliary_losses == []


def test_padding_has_no_loss() -> None:
    whole = losses(indexed(), [Q, K, V], GATES, (9, 5))
    first = losses(indexed(), [Q, K, V], GATES, (9, 0))
    inputs = [x[:, :, :5] for x in (Q, K, V)]
    second = losses(
        indexed(), inputs, {name: gate[:, :, :5] for name, gate in GATES.items()}, (0, 5)
    )
    torch.testing.assert_close(whole, first + second)


def test_an_indexer_is_detached_from_the_stream() -> None:
    gating = IndexerGating(indexed().gates, 6, CHECKED_SHAPE)
    x = torch.randn(1, 4, 6, requires_grad=True)
    found = gating.gates(x)
    assert {name: tuple(gate.shape) for name, gate in found.items()} == {
        "index_query": (1, 3, 4, 5),
        "index_key": (1, 1, 4, 5),
        "index_weight": (1, 3, 4),
    }
    sum(gate.sum() for gate in found.values()).backward()  # type: ignore[union-attr]
    assert x.grad is None


def test_an_indexer_is_refused_in_cross_attention() -> None:
    config = TopKConfig(indexer_heads=2)
    sizes: dict[str, Any] = {"n_layers": 1, "n_heads": 2, "d_model": 8}
    decoder = TargetConfig(**sizes, cross_attention=config)
    pair = EncoderDecoderConfig(encoder=TargetConfig(**sizes), decoder=decoder)
    with pytest.raises(
        UnsupportedError, match="indexed top-k attention does not support cross-att"
    ):
        make_model(pair, LMHeadConfig(), 11)
    assert TargetConfig(**sizes, attention=config).cross != config


def test_without_an_indexer_nothing_is_added() -> None:
    assert TopKConfig().indexer_heads == 0
    assert not any("gating" in name for name in tiny_model(attention=TopKConfig()).state_dict())
