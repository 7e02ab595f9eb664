"""Gemma's layers, as older files describe them."""

from typing import Any

from regard.huggingface.convert.families import FAMILIES
from regard.models.config import DecoderConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import LinearScalingConfig, RotaryConfig

HF: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "sliding_window": 5,
}


def read(model_type: str, **fields: Any) -> DecoderConfig:
    config = FAMILIES[model_type].read_config({**HF, "model_type": model_type, **fields})
    assert isinstance(config, DecoderConfig)
    return config


def test_gemma_3_of_transformers_4() -> None:
    """`config.json` of gemma-3-4b has no rope_parameters, and a number for its layers."""
    scaling = {"factor": 8.0, "rope_type": "linear"}
    config = read(
        "gemma3_text",
        sliding_window_pattern=3,
        rope_theta=5e5,
        rope_local_base_freq=2e4,
        rope_scaling=scaling,
    )
    far = RotaryConfig(base=5e5, scaling=LinearScalingConfig(factor=8.0))
    near = LayerConfig(repeat=2, window=5, positions=RotaryConfig(base=2e4))
    assert config.positions == far
    assert config.pattern == (near, LayerConfig())
    assert [layer.window for layer in config.layers] == [5, 5, 0, 5, 5, 0, 5, 5]


def test_the_bases_of_gemma_3_are_a_million_and_ten_thousand() -> None:
    config = read("gemma3_text")
    assert config.positions == RotaryConfig(base=1e6)
    near = LayerConfig(repeat=5, window=5, positions=RotaryConfig())
    assert config.pattern == (near, LayerConfig())
    assert (config.head_dim, config.qk_norm, config.logit_softcap) == (256, True, None)


def test_gemma_2_without_a_list_of_layers() -> None:
    config = read("gemma2")
    assert config.pattern == (LayerConfig(window=5), LayerConfig())
    assert (config.attention.softcap, config.logit_softcap) == (50.0, 30.0)  # type: ignore[attr-defined]


def test_gelu_of_gemma_is_its_approximation() -> None:
    assert read("gemma", hidden_act="gelu", hidden_activation=None).activation == "gelu-tanh"
