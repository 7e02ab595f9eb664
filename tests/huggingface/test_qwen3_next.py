"""Qwen3-Next's layers, as released models and older files describe them."""

from typing import Any

from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.huggingface.convert.families import FAMILIES
from regard.models.config import DecoderConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import NoPositionsConfig, RotaryConfig

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


def test_experts_of_no_layer_are_allowed() -> None:
    assert read(num_experts=8, mlp_only_layers=[*range(6)]) == read()
