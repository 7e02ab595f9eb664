"""Qwen3-Next's layers: their sizes, their projections in one tensor, and what is refused."""

import re
from typing import Any

import pytest
import torch

from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.errors import UserError
from regard.explorer.intercept import capture_attention
from regard.huggingface.convert.families import FAMILIES
from regard.models.config import DecoderConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import NoPositionsConfig, RotaryConfig
from tiny_hugging_face import VOCABULARY, ours, tensors_of, tiny

FAMILY = FAMILIES["qwen3_next"]
HF: dict[str, Any] = {
    "model_type": "qwen3_next",
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "num_experts": 0,
}
VARIANT = "four layers of period 4"


def read(**fields: Any) -> DecoderConfig:
    hf = FAMILY.amend({**HF, **fields}, {})
    config = FAMILY.read_config(hf)
    assert isinstance(config, DecoderConfig)
    return config


def test_the_sizes_of_the_released_models_are_the_defaults() -> None:
    config = read(rope_theta=1e7)
    attention = GatedDeltaNetConfig(
        output_gate=True, gate_activation="silu", norm_eps=1e-6, qk_norm_eps=1e-6
    )
    linear = LayerConfig(
        repeat=3,
        attention=attention,
        positions=NoPositionsConfig(),
        n_heads=16,
        n_kv_heads=16,
        n_value_heads=32,
        head_dim=128,
        short_conv=4,
        qk_norm=False,
    )
    assert config.pattern == (linear, LayerConfig())
    assert (config.head_dim, config.positions) == (256, RotaryConfig(base=1e7, dim=64))


def test_an_older_file_has_the_interval_of_full_layers() -> None:
    config = read(full_attention_interval=2, partial_rotary_factor=0.5)
    assert [layer.short_conv for layer in config.layers] == [4, 0] * 3
    assert config.positions == RotaryConfig(dim=128)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"num_experts": 8}, "num_experts = 8: layer 0 is a mixture of experts, which"),
        ({"num_experts": 8, "decoder_sparse_step": 2}, "num_experts = 8: layer 1 is a mixture"),
        ({"num_experts": 8, "mlp_only_layers": [0, 1, 2, 4, 5]}, "num_experts = 8: layer 3 is a"),
        ({"attention_bias": True}, "attention_bias = True: only models with False"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu': only models with silu"),
        ({"linear_value_head_dim": 64}, "linear_value_head_dim = 64: only models with 128, as"),
        ({"layer_types": ["linear_attention"] * 6}, "layer_types = 'linear_attention': only"),
        ({"linear_num_value_heads": 24}, "pattern[0]: n_value_heads = 24 is no multiple"),
    ],
)
def test_what_is_lacking_here_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"config.json: {reason}")):
        read(**fields)


def test_experts_of_no_layer_are_allowed() -> None:
    assert read(num_experts=8, mlp_only_layers=[*range(6)]) == read()


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.linear_attn.in_proj_qkvz.weight",
        "model.layers.1.linear_attn.in_proj_ba.weight",
        "model.layers.3.self_attn.q_proj.weight",
        "model.layers.2.linear_attn.A_log",
    ],
)
def test_tensors_are_checked_by_their_names(name: str) -> None:
    theirs = tiny("qwen3_next", VARIANT)
    tensors = tensors_of(theirs)
    config = FAMILY.read_config(theirs.config.to_dict())
    wrong = tensors | {name: tensors[name][1:]}
    with pytest.raises(UserError, match=f"^{re.escape(name)}: has shape .*, where config.json"):
        FAMILY.load_weights(wrong, config)
    del tensors[name]
    with pytest.raises(UserError, match=f"^{re.escape(name)}: no such tensor"):
        FAMILY.load_weights(tensors, config)


def test_the_explorer_shows_the_weights_of_each_layer() -> None:
    """Which are checked against the outputs of the kernels."""
    model = ours(tiny("qwen3_next", VARIANT))
    records = capture_attention(model, torch.arange(5, 21)[None] % VOCABULARY)
    assert [record.weights.shape[1] for record in records] == [4] * 4
    for record in records:
        torch.testing.assert_close(record.output_from(record.weights), record.out)
