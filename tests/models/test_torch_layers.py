"""A layer is torch's TransformerEncoderLayer and, with a source, its TransformerDecoderLayer."""

from itertools import product
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Mask
from regard.models.config import TargetConfig, TransformerConfig
from regard.models.layers import Layer
from tiny_recurrent import close, normal, sharp

D, HEADS, D_FF = 12, 3, 20
LENGTHS = torch.tensor([6, 1, 4])
SOURCE_LENGTHS = torch.tensor([2, 7, 5])
N, M = int(LENGTHS.max()), int(SOURCE_LENGTHS.max())
PADDING = torch.arange(N) >= LENGTHS[:, None]
SOURCE_PADDING = torch.arange(M) >= SOURCE_LENGTHS[:, None]
AHEAD = torch.ones(N, N, dtype=torch.bool).triu(1)
"""Torch's masks are True where nothing may be looked at."""
MASKS: dict[str, tuple[Mask | None, dict[str, Tensor]]] = {
    "none": (None, {}),
    "padding": (Mask.lengths(LENGTHS), {"key_padding_mask": PADDING}),
    "causal": (Mask.causal(), {"mask": AHEAD}),
    "both": (Mask.causal() & Mask.lengths(LENGTHS), {"mask": AHEAD, "key_padding_mask": PADDING}),
}
"""Ours, and the same as torch has it."""
EVERY_MASK = pytest.mark.parametrize("masks", MASKS)
VARIANTS = pytest.mark.parametrize(
    ("norm", "activation"), [*product(["pre", "post"], ["relu", "gelu"])]
)
Norm = Literal["pre", "post"]
Activation = Literal["relu", "gelu"]


def tiny_layer(norm: Norm, activation: Activation, d_source: int | None = None) -> Layer:
    config = TargetConfig(
        n_heads=HEADS, d_model=D, d_ff=D_FF, norm=norm, activation=activation, norm_eps=0.01
    )
    source = None if d_source is None else TransformerConfig(n_heads=1, d_model=d_source)
    layer = sharp(Layer(config, 0, source))
    for module in layer.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data += 1
    return layer


def torch_settings(norm: Norm, activation: Activation) -> dict[str, Any]:
    """Without dropout, and in training mode, where torch takes no shortcut through its kernels."""
    return {
        "d_model": D,
        "nhead": HEADS,
        "dim_feedforward": D_FF,
        "dropout": 0.0,
        "activation": activation,
        "layer_norm_eps": 0.01,
        "batch_first": True,
        "norm_first": norm == "pre",
        "dtype": torch.float64,
    }


def shared_weights(layer: Layer, last_norm: str) -> dict[str, Tensor]:
    """Self-attention and feed-forward by torch's names."""
    attention, fed = layer.self_attention, layer.feed_forward
    modules = {
        "self_attn.out_proj": attention.o_proj,
        "linear1": fed.up_proj,
        "linear2": fed.down_proj,
        "norm1": layer.norm_attention,
        last_norm: layer.norm_feed_forward,
    }
    return {
        "self_attn.in_proj_weight": attention.qkv_proj.weight,
        "self_attn.in_proj_bias": attention.qkv_proj.bias,
        **of_modules(modules),
    }


def of_modules(modules: dict[str, Any]) -> dict[str, Tensor]:
    return {
        f"{name}.{part}": getattr(module, part)
        for name, module in modules.items()
        for part in ("weight", "bias")
    }


def torch_encoder_layer(layer: Layer, norm: Norm, activation: Activation) -> nn.Module:
    theirs = nn.TransformerEncoderLayer(**torch_settings(norm, activation))
    theirs.load_state_dict(shared_weights(layer, "norm2"))
    return theirs


def torch_decoder_layer(
    layer: Layer, norm: Norm, activation: Activation, d_source: int
) -> nn.Module:
    """With an attention to sources of any width, which torch's layer doesn't make itself."""
    theirs = nn.TransformerDecoderLayer(**torch_settings(norm, activation))
    theirs.multihead_attn = nn.MultiheadAttention(
        D, HEADS, kdim=d_source, vdim=d_source, batch_first=True, dtype=torch.float64
    )
    cross = layer.cross_attention
    query, source = cross.q_proj, cross.kv_proj
    if d_source == D:
        weights = {"in_proj_weight": torch.cat([query.weight, source.weight])}
    else:
        key, value = source.weight.chunk(2)
        weights = {"q_proj_weight": query.weight, "k_proj_weight": key, "v_proj_weight": value}
    weights["in_proj_bias"] = torch.cat([query.bias, source.bias])
    theirs.load_state_dict(
        {
            **shared_weights(layer, "norm3"),
            **{f"multihead_attn.{name}": weight for name, weight in weights.items()},
            **of_modules({"multihead_attn.out_proj": cross.o_proj, "norm2": layer.norm_cross}),
        }
    )
    return theirs


def assert_same(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    """Outputs and their gradients."""
    assert close(ours.detach(), theirs.detach())
    toward = normal(*ours.shape, seed=9)
    for one, other in zip(
        torch.autograd.grad((ours * toward).sum(), inputs),
        torch.autograd.grad((theirs * toward).sum(), inputs),
        strict=True,
    ):
        assert close(one, other)


@EVERY_MASK
@VARIANTS
def test_a_layer_is_torch_s_encoder_layer(norm: Norm, activation: Activation, masks: str) -> None:
    layer, x = tiny_layer(norm, activation), normal(3, N, D).requires_grad_()
    theirs, (mask, torch_masks) = torch_encoder_layer(layer, norm, activation), MASKS[masks]
    named = {f"src_{name}": value for name, value in torch_masks.items()}
    assert_same(layer(x, None, None, mask), theirs(x, **named), x)


@pytest.mark.parametrize(
    ("d_source", "source_padding"), [(D, True), (5, False), (16, True)], ids=str
)
@EVERY_MASK
@pytest.mark.parametrize(("norm", "activation"), [("pre", "gelu"), ("post", "relu")])
def test_with_a_source_it_is_torch_s_decoder_layer(
    norm: Norm, activation: Activation, masks: str, d_source: int, source_padding: bool
) -> None:
    layer = tiny_layer(norm, activation, d_source)
    theirs = torch_decoder_layer(layer, norm, activation, d_source)
    x, source = normal(3, N, D).requires_grad_(), normal(3, M, d_source, seed=1).requires_grad_()
    mask, torch_masks = MASKS[masks]
    named = {f"tgt_{name}": value for name, value in torch_masks.items()}
    memory = layer.cross_attention.encode_memory(
        source, Mask.lengths(SOURCE_LENGTHS) if source_padding else None
    )
    if source_padding:
        named["memory_key_padding_mask"] = SOURCE_PADDING
    assert_same(layer(x, None, None, mask, memory), theirs(x, source, **named), x, source)


@VARIANTS
@torch.no_grad()
def test_step_by_step_it_is_torch_s_decoder_layer(norm: Norm, activation: Activation) -> None:
    layer, x, source = tiny_layer(norm, activation, 5), normal(3, N, D), normal(3, M, 5, seed=1)
    expected = torch_decoder_layer(layer, norm, activation, 5)(
        x, source, tgt_mask=AHEAD, memory_key_padding_mask=SOURCE_PADDING
    )
    memory = layer.cross_attention.encode_memory(source, Mask.lengths(SOURCE_LENGTHS))
    state, steps = layer.self_attention.init_state(3, N), []
    for step in x.split(2, 1):
        out, state = layer.extend(step, None, None, state, None, memory)
        steps.append(out)
    assert close(torch.cat(steps, 1), expected)
