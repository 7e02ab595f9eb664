"""The model's configuration: frozen, complete, and impossible ones are refused with a reason."""

from typing import Any

import msgspec
import pytest

from regard.attention.config import SoftmaxConfig
from regard.config import Config, convert
from regard.errors import UserError
from regard.models.config import (
    DecoderConfig,
    FixedWindowConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
)
from regard.positions.config import LearnedConfig, NoPositionsConfig, RotaryConfig


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"n_heads": 3}, "n_heads = 3 doesn't divide d_model = 256: choose a divisor of d_model"),
        (
            {"n_kv_heads": 3},
            "n_kv_heads = 3 doesn't divide n_heads = 8: choose a divisor of n_heads",
        ),
        (
            {"n_kv_heads": 4, "n_value_heads": 6},
            "n_value_heads = 6 is no multiple of n_kv_heads = 4: choose a multiple",
        ),
        (
            {"n_kv_heads": 1, "n_value_heads": 3},
            "n_value_heads = 3 doesn't fit n_heads = 8: choose a divisor or a multiple of n_heads",
        ),
        ({"n_kv_heads": 16}, "n_kv_heads = 16 doesn't divide n_heads = 8"),
        (
            {"d_model": 24, "positions": RotaryConfig()},
            "rotary positions need an even head width, not 3",
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
        ("context_length", 0, r"`\$.context_length`"),
        ("n_layers", 0, r">= 1 - at `\$.n_layers`"),
        ("n_heads", 0, r">= 1 - at `\$.n_heads`"),
        ("n_kv_heads", 0, r">= 1 - at `\$.n_kv_heads`"),
        ("d_model", -8, r">= 1 - at `\$.d_model`"),
        ("d_ff", 0, r">= 1 - at `\$.d_ff`"),
        ("dropout", 1.0, r"< 1.0 - at `\$.dropout`"),
        ("dropout", -0.1, r">= 0.0 - at `\$.dropout`"),
        ("activation", "swish", r"'swish' - at `\$.activation`"),
        ("tie_head", 1, r"`bool`.*at `\$.tie_head`"),
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
    assert convert(msgspec.to_builtins(config), DecoderConfig, where="") == config


def test_heads_share_the_width_and_have_keys_of_their_own_unless_told_otherwise() -> None:
    config = DecoderConfig(d_model=96, n_heads=6)
    assert (config.d_head, config.kv_heads) == (16, 6)
    assert DecoderConfig(n_heads=8, n_kv_heads=2).kv_heads == 2


def test_an_unknown_mechanism_is_refused_with_its_path() -> None:
    with pytest.raises(UserError, match=r"attention\.kind: hardmax: no such mechanism"):
        convert({"attention": {"kind": "hardmax"}}, DecoderConfig, where="model")


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        DecoderConfig().n_layers = 2  # type: ignore[misc]


@pytest.mark.parametrize("type_", [RecurrentConfig, RecurrentEncoderDecoderConfig])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gated_cells_have_activations_of_their_own(type_: Any, cell: str) -> None:
    with pytest.raises(
        ValueError, match=f"identity is for vanilla cells, and cell = {cell}: set cell to vanilla"
    ):
        type_(cell=cell, activation="identity")
    assert type_(cell="vanilla", activation="identity").activation == "identity"


@pytest.mark.parametrize(
    ("type_", "field", "value"),
    [
        (RecurrentConfig, "context_length", 7),
        (RecurrentConfig, "cell", "mgu"),
        (RecurrentConfig, "activation", "relu"),
        (RecurrentConfig, "n_layers", 0),
        (RecurrentConfig, "dropout", 1.0),
        (RecurrentConfig, "attention", {"kind": "softmax"}),
        (RecurrentEncoderDecoderConfig, "attention", {"kind": "hardmax"}),
        (RecurrentEncoderDecoderConfig, "tie_head", True),
        (FixedWindowConfig, "size", 0),
        (FixedWindowConfig, "d_hidden", 0),
        (FixedWindowConfig, "n_layers", 2),
    ],
)
def test_values_out_of_range_of_other_models_are_refused_by_name(
    type_: type[Config], field: str, value: object
) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"`.*{field}.*`"):
        msgspec.convert({field: value}, type_)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (RecurrentConfig(cell="lstm", bidirectional=True), "rnn"),
        (RecurrentEncoderDecoderConfig(), "rnn-encoder-decoder"),
        (RecurrentEncoderDecoderConfig(attention=SoftmaxConfig()), "rnn-encoder-decoder"),
        (FixedWindowConfig(size=3, tie_head=True), "fixed-window"),
    ],
    ids=str,
)
def test_the_config_of_another_model_survives_its_plain_form_and_says_its_kind(
    config: Config, kind: str
) -> None:
    plain = msgspec.to_builtins(config)
    assert plain["kind"] == kind
    assert convert(plain, type(config), where="") == config
