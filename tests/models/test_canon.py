"""Canon layers against their formula: h + conv(h) at four places of a layer."""

from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Mask
from regard.models.attention_layers import ConvolvedSelfAttention, SelfAttention
from regard.models.canon import LayerWithCanon
from regard.models.config import DecoderConfig
from regard.models.layers import Layer
from regard.models.transformer import make_layer
from regard.positions.config import NoPositionsConfig
from tiny_models import tiny_config, tiny_model
from tiny_recurrent import close, normal, sharp

PLACES = ["".join(some) for n in range(1, 5) for some in combinations("ABCD", n)]
D, N = 16, 6
COUNTED = {"A": D, "B": 3 * D, "C": D, "D": 2 * 20}
"""Channels of each place in a layer of width D, whose gated feed-forward layer has width 20."""


def config(canon: str, **options: object) -> DecoderConfig:
    return tiny_config(canon=canon, d_ff=20, gated=True, positions=NoPositionsConfig(), **options)


def canon(module: nn.Module | None, h: Tensor) -> Tensor:
    """h_t + Σ_j w_j ⊙ h_(t-j), one token and one predecessor at a time."""
    if module is None:
        return h
    weight = module.get_parameter("weight")[:, 0]
    out = h.clone()
    for t in range(h.shape[1]):
        for back in range(min(weight.shape[1], t + 1)):
            out[:, t] += weight[:, -1 - back] * h[:, t - back]
    return out


@torch.no_grad()
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("places", ["A", "B", "C", "D", "ABCD"])
def test_a_layer_is_its_formula(places: str, parallel: bool) -> None:
    layer = sharp(make_layer(config(places, parallel_residual=parallel), 0))
    at = {place: getattr(layer, f"canon_{place.lower()}", None) for place in "ACD"}
    attention, feed = layer.self_attention, layer.feed_forward
    x, mask = normal(2, N, D), Mask.causal()
    read = canon(at["A"], layer.norm_attention(x))
    projected = canon(getattr(attention, "short_conv", None), attention.qkv_proj(read))
    query, key, value = projected.view(2, N, 3, 4, 4).permute(2, 0, 3, 1, 4)
    out = attention.attention(query, key, value, mask=mask)
    y = x + attention.o_proj(out.transpose(1, 2).flatten(2))
    fed = canon(at["C"], layer.norm_feed_forward(x if parallel else y))
    assert feed.gate_proj is not None
    inner = canon(at["D"], torch.cat([feed.up_proj(fed), feed.gate_proj(fed)], -1))
    up, gate = inner.chunk(2, -1)
    expected = y + feed.down_proj(feed.activation(gate) * up)
    assert close(layer(x, None, None, mask), expected)


@pytest.mark.parametrize("places", PLACES)
def test_each_place_adds_its_channels_times_the_width(places: str) -> None:
    sizes = [
        sum(p.numel() for p in make_layer(one, 0).parameters())
        for one in (config(places, canon_width=3), config("off"))
    ]
    assert sizes[0] - sizes[1] == 3 * sum(COUNTED[place] for place in places)


def test_without_them_a_layer_is_a_plain_one() -> None:
    assert type(make_layer(config("off"), 0)) is Layer
    assert type(make_layer(config("B"), 0)) is Layer
    assert type(make_layer(config("D"), 0)) is LayerWithCanon
    assert type(make_layer(config("off"), 0).self_attention) is SelfAttention
    assert type(make_layer(config("B"), 0).self_attention) is ConvolvedSelfAttention


@torch.no_grad()
def test_a_canon_layer_of_zeros_changes_nothing() -> None:
    """The other tensors have the names that they have without them."""
    plain, other = tiny_model(), tiny_model(canon="ABCD")
    other.load_state_dict(plain.state_dict(), strict=False)
    for name, weight in other.named_parameters():
        if name not in plain.state_dict():
            weight.zero_()
    ids = torch.arange(10)[None]
    assert torch.equal(other(ids), plain(ids))


def test_recomputed_activations_give_the_same_gradients() -> None:
    model, gradients = tiny_model(canon="ABCD").train(), []
    for recomputed in (False, True):
        for layer in model.body.layers:  # type: ignore[union-attr]
            layer.gradient_checkpointing = recomputed
        loss = model(torch.arange(10)[None]).square().sum()
        weights = [p for name, p in model.named_parameters() if "canon" in name or "conv" in name]
        gradients.append(torch.autograd.grad(loss, weights))
    assert len(gradients[0]) == 2 * 4
    for plain, other in zip(*gradients, strict=True):
        assert plain.abs().max() > 0
        assert close(other, plain)
