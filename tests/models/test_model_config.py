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


def test_parts_that_do_not_fit_are_refused_with_a_reason() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
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
    ]
    for settings, reason in cases:
        with pytest.raises(ValueError, match=reason):
            DecoderConfig(**settings)
        with pytest.raises(msgspec.ValidationError, match=reason):
            msgspec.convert(msgspec.to_builtins(settings), DecoderConfig)


def test_values_out_of_range_are_refused_with_their_path() -> None:
    for field, value, reason in [
        ("context_length", 0, r"`\$.context_length`"),
        ("n_kv_heads", 0, r">= 1 - at `\$.n_kv_heads`"),
        ("dropout", 1.0, r"< 1.0 - at `\$.dropout`"),
        ("activation", "swish", r"'swish' - at `\$.activation`"),
        ("tie_head", 1, r"`bool`.*at `\$.tie_head`"),
        ("positions", {"kind": "rotary", "base": 1.0}, r"> 1.0 - at `\$.positions.base`"),
        ("positions", {"kind": "learned", "base": 2.0}, r"unknown field `base`"),
        ("n_head", 8, r"unknown field `n_head`"),
    ]:
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


def test_gated_cells_have_activations_of_their_own() -> None:
    for type_ in [RecurrentConfig, RecurrentEncoderDecoderConfig]:
        for cell in ["gru", "lstm"]:
            with pytest.raises(
                ValueError,
                match=f"identity is for vanilla cells, and cell = {cell}: set cell to vanilla",
            ):
                type_(cell=cell, activation="identity")
            assert type_(cell="vanilla", activation="identity").activation == "identity"


def test_values_out_of_range_of_other_models_are_refused_by_name() -> None:
    for type_, field, value in [
        (RecurrentConfig, "context_length", 7),
        (RecurrentConfig, "attention", {"kind": "softmax"}),
        (RecurrentEncoderDecoderConfig, "attention", {"kind": "hardmax"}),
        (RecurrentEncoderDecoderConfig, "tie_head", True),
        (FixedWindowConfig, "size", 0),
    ]:
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
