"""Context of Hugging Face models' attention: positions as they are or not at all, and values.

What values add to the output is compared with the output layer itself, one head at a time.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import (
    BitNetConfig,
    BitNetModel,
    CohereConfig,
    CohereModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    PreTrainedModel,
    Qwen3Config,
    Qwen3Model,
    StableLmConfig,
    StableLmModel,
)

from regard.explorer.attention_maps import AttentionMap, position_pictures
from regard.explorer.huggingface.layer_context import huggingface_maps
from tiny_explored import IDS, MAKERS, PAIRED, TARGET, bart, bert, gpt2, llama, t5
from tiny_hugging_face import sharp

N = IDS.shape[1]
SIZES: dict[str, Any] = {
    **{"vocab_size": 23, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def seen(model: PreTrainedModel, ids: Tensor = IDS[:1]) -> dict[str, AttentionMap]:
    """The maps of a row by name; an encoder–decoder also reads a target."""
    inputs, target = {"input_ids": ids}, list[str]()
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"], target = TARGET[:1], ["y"] * 6
    maps = huggingface_maps(model, inputs, ["x"] * ids.shape[1], target)
    return {one.name: one for one in maps}


def only(model: PreTrainedModel, ids: Tensor = IDS[:1]) -> AttentionMap:
    (one,) = seen(model, ids).values()
    return one


# Positions


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_rows_of_the_table_are_shown(family: str) -> None:
    model: Any = {"gpt2": gpt2, "bert": bert}[family]()
    table = model.wpe if family == "gpt2" else model.embeddings.position_embeddings
    (picture,) = position_pictures(only(model))
    assert picture.name == "added to the embeddings"
    assert_close(picture.matrices["vectors"], table.weight[:N].detach(), rtol=0, atol=0)


def test_tokens_in_the_order_of_the_vocabulary_are_no_positions() -> None:
    one = only(bert(), torch.arange(N)[None])
    assert one.position_info.vectors is not None
    assert only(llama(), torch.arange(N)[None]).position_info.vectors is None


def test_each_stack_of_a_bart_begins_with_its_third_row() -> None:
    model: Any = bart()
    maps = seen(model)
    for name, n in (("encoder", N), ("decoder", 6)):
        table = getattr(model.model, name).embed_positions.weight.detach()
        vectors = maps[name].position_info.vectors
        assert vectors is not None
        assert_close(vectors, table[2 : 2 + n], rtol=0, atol=0)
    assert position_pictures(maps["decoder to source"]) == []


def test_the_bias_of_a_t5_is_drawn_once_a_stack() -> None:
    model: Any = t5()
    maps = seen(model)
    for name, n in (("encoder", N), ("decoder", 6)):
        (picture,) = position_pictures(maps[name])
        assert picture.name == "added to the scores, from layer 0"
        attention = getattr(model, name).block[0].layer[0].SelfAttention
        with torch.no_grad():
            expected = attention.compute_bias(n, n)[0]
        assert_close(torch.stack([*picture.matrices.values()]), expected, rtol=0, atol=0)
    assert position_pictures(maps["decoder to source"]) == []


def queries_before(model: Any, layer: int) -> Tensor:
    """What a layer's projection gives, before it is turned."""
    found: list[Tensor] = []
    attention = model.layers[layer].self_attn
    last = getattr(attention, "q_norm", attention.q_proj)
    hook = last.register_forward_hook(lambda *given: found.append(given[2]))
    with torch.no_grad():
        model(IDS[:1])
    hook.remove()
    return found[0].reshape(N, 4, 4).transpose(0, 1)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_turns_are_shown_with_queries_as_they_were_before(family: str) -> None:
    model = llama() if family == "llama" else sharp(Qwen3Model(Qwen3Config(**SIZES)), torch.float32)
    one = only(model)
    (picture,) = position_pictures(one)
    angles = torch.outer(torch.arange(N).double(), 10_000.0 ** (-torch.arange(0, 4, 2) / 4))
    assert_close(picture.matrices["cosines"], angles.cos().float())
    assert_close(picture.matrices["sines"], angles.sin().float())
    for i, layer in enumerate(one.layers):
        before = one.position_info.before_rotation(layer.record.query[0])
        assert before is not None
        assert_close(before, queries_before(model, i), rtol=0, atol=1e-5)


def unlike() -> dict[str, PreTrainedModel]:
    """Rotations that aren't the plain one, in all layers alike."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0}
    types = ["sliding_attention", "full_attention"]
    return {
        "neighbors in pairs": CohereModel(CohereConfig(**SIZES)),
        "a part of each head": StableLmModel(StableLmConfig(**SIZES)),
        "longer by a factor": llama(rope_parameters=yarn),
        "another base in each layer": Gemma3TextModel(Gemma3TextConfig(**SIZES, layer_types=types)),
    }


@pytest.mark.parametrize("case", unlike())
def test_other_rotations_are_not_shown(case: str) -> None:
    model = sharp(unlike()[case], torch.float32)
    one = only(model)
    assert position_pictures(one) == []
    assert one.position_info.before_rotation(one.layers[0].record.query[0]) is None


# Output projections

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
    maps = seen(model)
    assert len(maps) == (3 if family in PAIRED else 1)
    for one in maps.values():
        for i, layer in enumerate(one.layers):
            lengths, value = layer.value_lengths, layer.record.value[0]
            assert lengths is not None
            for head in range(4):
                shared = value[head * len(value) // 4]
                expected = added(OUTPUTS[family](model, one.name, i), shared, head, 4).norm(dim=-1)
                assert_close(lengths[head], expected, rtol=1e-5, atol=1e-5)


def test_where_the_heads_are_normalized_first_nothing_is_shown() -> None:
    assert only(BitNetModel(BitNetConfig(**SIZES)).eval()).layers[0].value_lengths is None


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
    one = only(model)
    assert one.layers[0].value_lengths is not None
    assert one.layers[1].value_lengths is None


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_watching_leaves_no_trace(family: str) -> None:
    model = MAKERS[family]()
    seen(model)
    with pytest.raises(IndexError):  # no such token
        seen(model, IDS[:1] + 100)
    assert not any(module._forward_hooks for module in model.modules())
