"""The model's configuration: frozen, complete, and impossible ones are refused with a reason."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from regard.models.config import DecoderConfig
from regard.models.config_attention import SoftmaxConfig
from regard.models.config_positions import LearnedConfig, NoPositionsConfig, RotaryConfig


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"n_heads": 3}, "n_heads = 3 doesn't divide d_model = 256: choose a divisor of d_model"),
        (
            {"n_kv_heads": 3},
            "n_kv_heads = 3 doesn't divide n_heads = 8: choose a divisor of n_heads",
        ),
        ({"n_kv_heads": 16}, "n_kv_heads = 16 doesn't divide n_heads = 8"),
        (
            {"d_model": 24, "positions": RotaryConfig()},
            "rotary positions need an even head width, and d_model / n_heads = 3",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_with_a_reason(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        DecoderConfig(**settings)
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert(msgspec.to_builtins(settings), DecoderConfig)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("block", 0, r"`\$.block`"),
        ("n_layers", 0, r">= 1 - at `\$.n_layers`"),
        ("n_heads", 0, r">= 1 - at `\$.n_heads`"),
        ("n_kv_heads", 0, r">= 1 - at `\$.n_kv_heads`"),
        ("d_model", -8, r">= 1 - at `\$.d_model`"),
        ("d_ff", 0, r">= 1 - at `\$.d_ff`"),
        ("dropout", 1.0, r"< 1.0 - at `\$.dropout`"),
        ("dropout", -0.1, r">= 0.0 - at `\$.dropout`"),
        ("activation", "swish", r"'swish' - at `\$.activation`"),
        ("tie_head", 1, r"`bool`.*at `\$.tie_head`"),
        ("attention", {"kind": "hardmax"}, r"'hardmax' - at `\$.attention.kind`"),
        ("positions", {"kind": "rotary", "base": 1.0}, r"> 1.0 - at `\$.positions.base`"),
        ("positions", {"kind": "learned", "base": 2.0}, r"unknown field `base`"),
        ("n_head", 8, r"unknown field `n_head`"),
    ],
)
def test_values_out_of_range_are_refused_with_their_path(
    field: str, value: object, reason: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert({field: value}, DecoderConfig)


@pytest.mark.parametrize(
    "config",
    [
        DecoderConfig(),
        DecoderConfig(positions=RotaryConfig(base=500.0), n_kv_heads=2, tie_head=True),
        DecoderConfig(positions=NoPositionsConfig(), activation="relu2", d_ff=100),
        DecoderConfig(d_model=24, positions=LearnedConfig(), attention=SoftmaxConfig()),
    ],
    ids=str,
)
def test_a_config_survives_its_plain_form(config: DecoderConfig) -> None:
    assert msgspec.convert(msgspec.to_builtins(config), DecoderConfig) == config


def test_heads_share_the_width_and_have_keys_of_their_own_unless_told_otherwise() -> None:
    config = DecoderConfig(d_model=96, n_heads=6)
    assert (config.d_head, config.kv_heads) == (16, 6)
    assert DecoderConfig(n_heads=8, n_kv_heads=2).kv_heads == 2


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        DecoderConfig().n_layers = 2  # type: ignore[misc]


def test_configuration_loads_no_torch() -> None:
    code = "import sys, regard.models.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
