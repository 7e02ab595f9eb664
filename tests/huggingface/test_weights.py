"""What Hugging Face's files of GPT-2 and BERT become, under old names too, and what is refused."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention.config import SoftmaxConfig
from regard.errors import UserError
from regard.huggingface.convert.families import FAMILIES as ALL
from regard.models.config import DecoderConfig, EncoderConfig
from tiny_hugging_face import tensors_of, tiny_bert, tiny_gpt2

FAMILIES = pytest.mark.parametrize("family", ["gpt2", "bert"])
MAKE = {"gpt2": tiny_gpt2, "bert": tiny_bert}


def gpt2_config(hf: Mapping[str, Any]) -> DecoderConfig:
    config = ALL["gpt2"].read_config(hf)
    assert isinstance(config, DecoderConfig)
    return config


def bert_config(hf: Mapping[str, Any]) -> EncoderConfig:
    config = ALL["bert"].read_config(hf)
    assert isinstance(config, EncoderConfig)
    return config


def described(family: str, **fields: Any) -> dict[str, Any]:
    """A config.json with some fields as given."""
    hf: dict[str, Any] = MAKE[family]().config.to_dict()
    return {**hf, **fields}


def read(family: str, tensors: Mapping[str, Tensor], **fields: Any) -> dict[str, Tensor]:
    hf = described(family, **fields)
    weights, _ = ALL[family].load_weights(tensors, ALL[family].read_config(hf))
    return weights


def assert_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


# Configuration


def test_gpt_2_s_configuration() -> None:
    dropouts = {"resid_pdrop": 0.2, "embd_pdrop": 0.2, "attn_pdrop": 0.2}
    config = gpt2_config(described("gpt2", n_inner=40, **dropouts))
    assert (config.context_length, config.n_layers, config.n_heads, config.d_model) == (
        16,
        2,
        4,
        16,
    )
    assert (config.d_ff, config.activation, config.norm) == (40, "gelu-tanh", "pre")
    assert (config.norm_eps, config.dropout, config.tie_head) == (1e-5, 0.2, True)
    assert config.attention == SoftmaxConfig()
    unscaled = gpt2_config(described("gpt2", scale_attn_weights=False))
    assert unscaled.attention == SoftmaxConfig(scaled=False)


def test_bert_s_configuration() -> None:
    config = bert_config(described("bert", tie_word_embeddings=False))
    assert (config.context_length, config.n_layers, config.n_heads, config.d_model) == (
        16,
        2,
        4,
        16,
    )
    assert (config.d_ff, config.activation, config.norm) == (24, "gelu", "post")
    assert (config.norm_eps, config.dropout, config.tie_head) == (1e-12, 0.1, False)
    assert config.n_token_types == 2


def test_what_cannot_be_had_is_refused_by_its_field() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("gpt2", {"model_type": "bert"}, "model_type = 'bert': only models with 'gpt2'"),
        ("gpt2", {"activation_function": "mish"}, "activation_function = 'mish': only models with"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention = True: only models with"),
        ("gpt2", {"pruned_heads": {"0": [1]}}, "pruned_heads = {'0': [1]}: only models with {}"),
        ("gpt2", {"embd_pdrop": 0.3}, "resid_pdrop = 0.1, embd_pdrop = 0.3: a"),
        ("gpt2", {"n_head": 3}, "n_heads = 3 doesn't divide d_model = 16"),
        ("gpt2", {"n_embd": "16"}, "d_model: expected an integer >= "),
        ("gpt2", {"n_positions": 4}, "context_length: expected an integer >= 8"),
        ("bert", {"model_type": "roberta"}, "model_type = 'roberta': only models with 'bert'"),
        ("bert", {"hidden_act": "relu"}, "hidden_act = 'relu': only models with gelu can be"),
        ("bert", {"is_decoder": True}, "is_decoder = True: only models with False"),
        ("bert", {"add_cross_attention": True}, "add_cross_attention = True: only models with"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'rel"),
        ("bert", {"quantization_config": {"bits": 4}}, "quantization_config = {'bits': 4}: only"),
    ]
    for family, fields, reason in cases:
        with pytest.raises(UserError, match=re.escape(f"config.json: {reason}")) as refused:
            ALL[family].read_config(described(family, **fields))
        assert "\n" not in str(refused.value)


def test_sizes_must_be_given() -> None:
    for family, field in [
        *(("gpt2", name) for name in ("n_positions", "n_layer", "n_head", "n_embd")),
        *(("bert", name) for name in ("max_position_embeddings", "hidden_size")),
        *(("bert", name) for name in ("num_hidden_layers", "num_attention_heads")),
        ("bert", "intermediate_size"),
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
            with pytest.raises(UserError, match=r"has shape \(.*\), where config.json makes it \("):
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
