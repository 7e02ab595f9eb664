"""What values add to the output, against the output layer itself, one head at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import BitNetConfig, BitNetModel, PreTrainedModel

from regard.explorer.attention_maps import AttentionMap
from regard.explorer.huggingface.layer_context import huggingface_maps
from tiny_explored import IDS, MAKERS, PAIRED, TARGET

OUTPUTS: dict[str, Callable[[Any, str, int], nn.Module]] = {
    "gpt2": lambda model, _, i: model.h[i].attn.c_proj,
    "bert": lambda model, _, i: model.encoder.layer[i].attention.output.dense,
    "llama": lambda model, _, i: model.layers[i].self_attn.o_proj,
    "t5": lambda model, kind, i: (
        {
            "encoder": model.encoder.block[i].layer[0],
            "decoder": model.decoder.block[i].layer[0],
            "decoder to source": model.decoder.block[i].layer[1],
        }[kind]
        .children()
        .__next__()
        .o
    ),
    "bart": lambda model, kind, i: (
        {
            "encoder": model.model.encoder.layers[i].self_attn,
            "decoder": model.model.decoder.layers[i].self_attn,
            "decoder to source": model.model.decoder.layers[i].encoder_attn,
        }[kind].out_proj
    ),
}
"""Where each architecture has it, as its source says."""


def maps_of(model: PreTrainedModel, family: str) -> tuple[AttentionMap, ...]:
    inputs = {"input_ids": IDS[:1]}
    if family not in PAIRED:
        return huggingface_maps(model, inputs, ["x"] * 8)
    inputs["decoder_input_ids"] = TARGET[:1]
    return huggingface_maps(model, inputs, ["x"] * 8, ["y"] * 6)


@torch.no_grad()
def added(output: nn.Module, value: Tensor, head: int, heads: int) -> Tensor:
    """What an output layer makes of one head's values, when the others have none."""
    alone = torch.zeros(len(value), heads, value.shape[1])
    alone[:, head] = value
    nothing = torch.zeros_like(alone)
    made: Tensor = output(alone.flatten(1)) - output(nothing.flatten(1))
    return made


@pytest.mark.parametrize("family", MAKERS)
def test_values_add_what_the_output_layer_makes_of_them(family: str) -> None:
    model = MAKERS[family]()
    maps = maps_of(model, family)
    assert len(maps) == (3 if family in PAIRED else 1)
    for one in maps:
        for i, layer in enumerate(one.layers):
            lengths, value = layer.value_lengths, layer.record.value[0]
            assert lengths is not None
            for head in range(4):
                shared = value[head * len(value) // 4]
                expected = added(OUTPUTS[family](model, one.name, i), shared, head, 4).norm(dim=-1)
                assert_close(lengths[head], expected, rtol=1e-5, atol=1e-5)


def test_where_the_heads_are_normalized_first_nothing_is_shown() -> None:
    sizes: dict[str, Any] = {"vocab_size": 23, "hidden_size": 16, "intermediate_size": 24}
    depth: dict[str, Any] = {
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    model = BitNetModel(BitNetConfig(**sizes, **depth)).eval()
    (one,) = maps_of(model, "bitnet")
    assert one.layers[0].value_lengths is None


class Adapted(nn.Module):
    """An output layer beside which another reads the same, as low-rank adapters do."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole, self.part = whole, nn.Linear(16, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.whole(x) + self.part(x)
        return made


def test_of_two_modules_that_read_the_heads_neither_is_taken() -> None:
    model: Any = MAKERS["llama"]()
    model.layers[1].self_attn.o_proj = Adapted(model.layers[1].self_attn.o_proj)
    (one,) = maps_of(model, "llama")
    assert one.layers[0].value_lengths is not None
    assert one.layers[1].value_lengths is None


def hooks_of(model: nn.Module) -> Iterator[Any]:
    for module in model.modules():
        yield from module._forward_hooks.values()


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_watching_leaves_no_trace(family: str) -> None:
    model = MAKERS[family]()
    maps_of(model, family)
    with pytest.raises(IndexError):  # no such token
        huggingface_maps(model, {"input_ids": IDS[:1] + 100}, ["x"] * 8)
    assert not [*hooks_of(model)]
