"""What Hugging Face's files become, under old names too, and what is refused."""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from regard.errors import UserError
from regard.huggingface.convert.families import FAMILIES as ALL
from regard.models.config import TransformerConfig
from tiny_hugging_face import SIZES, tensors_of, tiny, tiny_bert, tiny_gpt2

MAKE: dict[str, Callable[..., PreTrainedModel]] = {
    "gpt2": tiny_gpt2,
    "bert": tiny_bert,
    "qwen3_next": partial(tiny, "qwen3_next", "as many value heads, tied, first layer full"),
}
FAMILIES = pytest.mark.parametrize("family", MAKE)


@cache
def usual_fields(family: str) -> dict[str, Any]:
    """The config.json of a tiny model."""
    return MAKE[family]().config.to_dict()


def described(family: str, **fields: Any) -> dict[str, Any]:
    """A config.json with some fields as given."""
    return {**usual_fields(family), **fields}


def read(family: str, tensors: Mapping[str, Tensor], **fields: Any) -> dict[str, Tensor]:
    hf = described(family, **fields)
    weights, _ = ALL[family].load_weights(tensors, ALL[family].read_config(hf))
    return weights


def assert_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


# Configuration


@pytest.mark.parametrize(
    ("family", "fields", "dropout"),
    [
        ("gpt2", {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2}, (0.2, None)),
        ("gpt2", {"attn_pdrop": 0.3}, (0.1, 0.3)),
        ("bert", {}, (0.1, None)),
    ],
)
def test_dropouts_are_read(family: str, fields: dict[str, Any], dropout: tuple[float, Any]) -> None:
    """Whatever a model computes otherwise is compared in test_families."""
    config = ALL[family].read_config(described(family, **fields))
    assert isinstance(config, TransformerConfig)
    assert (config.dropout, config.attention_dropout) == dropout


MIXED = {"layer_types": ["linear_attention", "full_attention"]}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"model_type": "bert"}, "model_type = 'bert': only models with 'gpt2'"),
    ("gpt2", {"activation_function": "mish"}, "activation_function = 'mish': only models with"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention = True: only models with"),
    ("gpt2", {"pruned_heads": {"0": [1]}}, "pruned_heads = {'0': [1]}: only models with {}"),
    ("gpt2", {"embd_pdrop": 0.3}, "resid_pdrop = 0.1, embd_pdrop = 0.3: a"),
    ("gpt2", {"n_head": 3}, "n_heads = 3 doesn't divide d_model = 16"),
    ("gpt2", {"n_embd": "16"}, "d_model: expected an integer >= "),
    ("gpt2", {"n_positions": 4}, "context_length: expected an integer >= 8"),
    ("gpt_neox", {"quantization_config": {"bits": 4}}, "quantization_config = {'bits': 4}: only"),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type = 'yarn'"),
    ("llama", {"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
    ("llama", {"hidden_act": "mish"}, "hidden_act = 'mish'"),
    ("llama", {"hidden_size": "16"}, ""),
    ("mistral", {"num_key_value_heads": 3}, "n_kv_heads = 3 doesn't divide n_heads = 4"),
    ("qwen3", {"rope_parameters": {"full_attention": {}}}, "rope_parameters = {'full_att"),
    ("qwen3_next", {"num_experts": 8}, "num_experts = 8: layer 0 is a mixture of experts, which"),
    ("qwen3_next", {"num_experts": 8, "decoder_sparse_step": 2}, "num_experts = 8: layer 1 is a"),
    ("qwen3_next", {"num_experts": 8, "mlp_only_layers": [0]}, "num_experts = 8: layer 1 is a"),
    ("qwen3_next", {"attention_bias": True}, "attention_bias = True: only models with False"),
    ("qwen3_next", {"hidden_act": "gelu"}, "hidden_act = 'gelu': only models with silu"),
    (
        "qwen3_next",
        MIXED | {"linear_value_head_dim": 8},
        "linear_value_head_dim = 8: only models with 4, ",
    ),
    ("qwen3_next", {"layer_types": ["linear_attention"] * 2}, "layer_types = 'linear_attention':"),
    (
        "qwen3_next",
        MIXED | {"linear_num_value_heads": 3},
        "pattern[0]: n_value_heads = 3 is no multiple",
    ),
    ("gemma", {"use_bidirectional_attention": True}, "use_bidirectional_attention = True: only"),
    ("gemma2", {"layer_types": ["full_attention"]}, "layer_types has 1 entries, and num_hidden"),
    ("gemma2", {"layer_types": ["chunked"] * 2}, "layer_types = 'chunked': only models with"),
    ("gemma2", {"attn_logit_softcapping": 0.0}, "attention.softcap: expected a number > 0"),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0: only"),
    ("gemma3_text", {"rope_scaling": {"rope_type": "yarn"}}, "rope_type = 'yarn': only"),
    (
        "gemma3_text",
        {"rope_scaling": {"type": "linear"}},
        "rope_scaling = {'type': 'linear'}: only",
    ),
    (
        "gemma3_text",
        {"rope_scaling": {"type": "linear", "factor": 8.0}},
        "rope_scaling = {'type': 'linear', 'factor': 8.0}: only models with rope_type instead of",
    ),
    ("bert", {"model_type": "roberta"}, "model_type = 'roberta': only models with 'bert'"),
    ("bert", {"hidden_act": "relu"}, "hidden_act = 'relu': only models with gelu can be"),
    ("bert", {"is_decoder": True}, "is_decoder = True: only models with False"),
    ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'rel"),
    ("distilbert", {"activation": "relu"}, "activation = 'relu'"),
    ("t5", {"feed_forward_proj": "gated-mish"}, "feed_forward_proj = 'gated-mish'"),
    ("bart", {"normalize_before": True}, "normalize_before = True"),
]
"""Families, fields of config.json, and the reason."""


@pytest.mark.parametrize(("family", "fields", "reason"), REFUSED, ids=str)
def test_what_cannot_be_had_is_refused_by_its_field(
    family: str, fields: dict[str, Any], reason: str
) -> None:
    own, hf = ALL[family], {"model_type": family, **SIZES[family], **fields}
    with pytest.raises(UserError, match=re.escape(f"config.json: {reason}")) as refused:
        own.read_config(own.amend(hf, {}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("family", ["qwen2", "qwen3_next", "gemma2", "gemma3_text"])
@pytest.mark.parametrize("number", [-3, 10**9, 10**20, 2.0, True, "2", None])
def test_layers_of_several_kinds_are_counted_before_they_are_listed(
    family: str, number: Any
) -> None:
    hf = {"model_type": family, **SIZES[family], "num_experts": 0, "num_hidden_layers": number}
    reason = f"num_hidden_layers = {number!r}: only models with 1 to 10,000 layers can be imported"
    with pytest.raises(UserError, match=re.escape(f"config.json: {reason}")):
        ALL[family].read_config(ALL[family].amend(hf, {}))


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64])
def test_weights_that_are_no_real_numbers_are_refused(dtype: torch.dtype) -> None:
    """Such as quantized ones without their scales."""
    name = "transformer.h.1.mlp.c_fc.weight"
    tensors = tensors_of(tiny_gpt2())
    tensors[name] = tensors[name].to(dtype)
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(UserError, match=f"^{name}: has dtype {kind}: save the model with float"):
        read("gpt2", tensors)


def test_a_model_is_not_built_of_more_layers_than_tensors() -> None:
    """Where a million layers took minutes."""
    for family, name, n_layers in [("gpt2", "n_layer", 10**6), ("t5", "num_layers", 10**6 + 2)]:
        theirs = tiny(family, "plain")
        tensors = tensors_of(theirs)
        config = ALL[family].read_config({**theirs.config.to_dict(), name: 10**6})
        reason = f"describes {n_layers} layers, and there are only {len(tensors)} tensors"
        with pytest.raises(UserError, match=rf"config\.json: {reason}"):
            ALL[family].load_weights(tensors, config)


def test_a_decoder_of_t5_without_layers_is_refused() -> None:
    hf = {"model_type": "t5", **SIZES["t5"], "num_decoder_layers": 0}
    with pytest.raises(UserError, match=r"decoder\.n_layers: expected an integer >= 1, not 0"):
        ALL["t5"].read_config(hf)


def test_sizes_must_be_given() -> None:
    for family, field in [
        *(("gpt2", name) for name in ("n_positions", "n_layer", "n_head", "n_embd")),
        *(("bert", name) for name in ("max_position_embeddings", "hidden_size")),
        *(("bert", name) for name in ("num_hidden_layers", "num_attention_heads")),
        ("bert", "intermediate_size"),
        ("qwen3_next", "num_hidden_layers"),
    ]:
        hf = described(family)
        del hf[field]
        with pytest.raises(UserError, match=f"^config.json: {field} is missing"):
            ALL[family].read_config(hf)


# Weights


def test_a_gpt_2_without_prefix_and_with_its_causal_masks_is_the_same() -> None:
    """As in openai-community/gpt2."""
    tensors = tensors_of(tiny_gpt2())
    older = {
        name.removeprefix("transformer."): tensor
        for name, tensor in tensors.items()
        if name != "lm_head.weight"
    }
    for layer in range(2):
        older[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 16, 16).tril().bool()
        older[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    assert_equal(read("gpt2", older), read("gpt2", tensors))


def test_a_bert_with_gammas_betas_and_a_second_head_is_the_same() -> None:
    """As in google-bert/bert-base-uncased."""
    tensors = tensors_of(tiny_bert())
    older = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in tensors.items()
        if not name.startswith("cls.predictions.decoder")
    }
    older["bert.embeddings.position_ids"] = torch.arange(16)[None]
    older["bert.pooler.dense.weight"] = torch.eye(16)
    older["bert.pooler.dense.bias"] = torch.ones(16)
    older["cls.seq_relationship.weight"] = torch.ones(2, 16)
    older["cls.seq_relationship.bias"] = torch.ones(2)
    assert_equal(read("bert", older), read("bert", tensors))


@FAMILIES
def test_every_tensor_is_needed(family: str) -> None:
    tensors = tensors_of(MAKE[family](tie_word_embeddings=False))
    tensors.pop("cls.predictions.bias", None)  # the second name of one that is there
    for name in tensors:
        rest = {other: tensor for other, tensor in tensors.items() if other != name}
        with pytest.raises(UserError, match=f"^{re.escape(name)}: no such tensor"):
            read(family, rest, tie_word_embeddings=False)


@pytest.mark.slow
@FAMILIES
def test_every_tensor_has_its_shape(family: str) -> None:
    tensors = tensors_of(MAKE[family](tie_word_embeddings=False))
    tensors.pop("cls.predictions.bias", None)
    for name, tensor in tensors.items():
        for wrong in (tensor[None], tensor[..., :-1], torch.tensor(1.0)):
            with pytest.raises(UserError, match=r"has shape \(.*\), where config.json makes it"):
                read(family, {**tensors, name: wrong}, tie_word_embeddings=False)


@FAMILIES
def test_a_surplus_tensor_is_refused(family: str) -> None:
    name = "transformer.h.2.ln_1.weight"
    tensors = tensors_of(MAKE[family]())
    with pytest.raises(UserError, match=f"^{name}: a tensor that a model of this config.json"):
        read(family, {**tensors, name: torch.ones(1)})


@pytest.mark.parametrize(
    ("family", "name"), [("gpt2", "lm_head.weight"), ("bert", "cls.predictions.decoder.weight")]
)
def test_a_tied_matrix_must_be_what_it_is_tied_to(family: str, name: str) -> None:
    tensors = tensors_of(MAKE[family]())
    other = {**tensors, name: tensors[name] + 1}
    with pytest.raises(UserError, match=f"^{name}: isn't .*: set tie_word_embeddings to false"):
        read(family, other)
    weights = read(family, other, tie_word_embeddings=False)
    head = "head.weight" if family == "gpt2" else "head.scores.weight"
    assert torch.equal(weights[head], other[name])


def test_weights_are_copies_in_their_own_precision() -> None:
    tensors = tensors_of(tiny_gpt2(dtype=torch.float16))
    weights = read("gpt2", tensors)
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    tensors["transformer.h.0.attn.c_attn.weight"].zero_()
    assert bool(weights["body.layers.0.self_attention.qkv_proj.weight"].any())
    assert all(tensor.is_contiguous() for tensor in weights.values())
