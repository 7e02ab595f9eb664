"""Gemma's layers, as older files describe them, and what is refused."""

import re
from typing import Any

import pytest
import torch

from regard.errors import UserError
from regard.explorer.intercept import capture_attention
from regard.huggingface.convert.families import FAMILIES
from regard.models.config import DecoderConfig
from regard.models.pattern import LayerConfig
from regard.positions.config import LinearScalingConfig, RotaryConfig
from tiny_hugging_face import VARIANTS, VOCABULARY, ours, tiny

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


@pytest.mark.parametrize(
    ("model_type", "fields", "reason"),
    [
        (
            "gemma",
            {"use_bidirectional_attention": True},
            "use_bidirectional_attention = True: only",
        ),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0: only"),
        (
            "gemma2",
            {"layer_types": ["full_attention"]},
            "layer_types has 1 entries, and num_hidden",
        ),
        ("gemma2", {"layer_types": ["chunked"] * 8}, "layer_types = 'chunked': only models with"),
        ("gemma2", {"attn_logit_softcapping": 0.0}, "attention.softcap: expected a number > 0"),
        ("gemma3_text", {"rope_scaling": {"rope_type": "yarn"}}, "rope_type = 'yarn': only"),
    ],
)
def test_what_gemma_lacks_here_is_refused(
    model_type: str, fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=re.escape(f"config.json: {reason}")):
        read(model_type, **fields)


@pytest.mark.parametrize("family", ["gemma", "gemma2", "gemma3_text"])
def test_the_explorer_shows_the_weights_of_each_layer(family: str) -> None:
    """Which are checked against the outputs of the kernels."""
    model = ours(tiny(family, next(iter(VARIANTS[family]))))
    ids = torch.arange(5, 21)[None] % VOCABULARY
    records = capture_attention(model, ids)
    assert len(records) == (8 if family == "gemma3_text" else 2)
    for record in records:
        torch.testing.assert_close(record.output_from(record.weights), record.out)
