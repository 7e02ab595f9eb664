"""Positions of Hugging Face's models: shown as they are, or not at all."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from transformers import (
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
from tiny_explored import IDS, TARGET, bart, bert, gpt2, llama, t5
from tiny_hugging_face import sharp

N = IDS.shape[1]
SIZES: dict[str, Any] = {
    **{"vocab_size": 23, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
}


def seen(model: PreTrainedModel, ids: Tensor = IDS[:1]) -> AttentionMap:
    (one,) = huggingface_maps(model, {"input_ids": ids}, ["x"] * ids.shape[1])
    return one


def seen_in_pairs(model: PreTrainedModel) -> dict[str, AttentionMap]:
    inputs = {"input_ids": IDS[:1], "decoder_input_ids": TARGET[:1]}
    maps = huggingface_maps(model, inputs, ["x"] * N, ["y"] * 6)
    return {one.name: one for one in maps}


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_rows_of_the_table_are_shown(family: str) -> None:
    model: Any = {"gpt2": gpt2, "bert": bert}[family]()
    table = model.wpe if family == "gpt2" else model.embeddings.position_embeddings
    (picture,) = position_pictures(seen(model))
    assert picture.name == "added to the embeddings"
    assert_close(picture.matrices["vectors"], table.weight[:N].detach(), rtol=0, atol=0)


def test_tokens_in_the_order_of_the_vocabulary_are_no_positions() -> None:
    one = seen(bert(), torch.arange(N)[None])
    assert one.position_info.vectors is not None
    assert seen(llama(), torch.arange(N)[None]).position_info.vectors is None


def test_each_stack_of_a_bart_begins_with_its_third_row() -> None:
    model: Any = bart()
    maps = seen_in_pairs(model)
    for name, n in (("encoder", N), ("decoder", 6)):
        table = getattr(model.model, name).embed_positions.weight.detach()
        vectors = maps[name].position_info.vectors
        assert vectors is not None
        assert_close(vectors, table[2 : 2 + n], rtol=0, atol=0)
    assert position_pictures(maps["decoder to source"]) == []


def test_the_bias_of_a_t5_is_drawn_once_a_stack() -> None:
    model: Any = t5()
    maps = seen_in_pairs(model)
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
    one = seen(model)
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
    one = seen(model)
    assert position_pictures(one) == []
    assert one.position_info.before_rotation(one.layers[0].record.query[0]) is None
