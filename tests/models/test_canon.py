"""Canon layers against their formula: h + conv(h) at four places of a layer."""

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Mask
from regard.models.config import DecoderConfig
from regard.models.transformer import make_layer
from regard.positions.config import NoPositionsConfig
from tiny_models import tiny_config
from tiny_recurrent import close, normal, sharp

D, N = 16, 6


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
