"""Recurrent configuration: what doesn't fit is refused, and what fits survives its plain form."""

from typing import Any

import msgspec
import pytest

from regard.models.config_attention import SoftmaxConfig
from regard.models.config_base import Config
from regard.models.config_recurrent import (
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    WindowConfig,
)


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
        (RecurrentConfig, "block", 7),
        (RecurrentConfig, "cell", "mgu"),
        (RecurrentConfig, "activation", "relu"),
        (RecurrentConfig, "n_layers", 0),
        (RecurrentConfig, "dropout", 1.0),
        (RecurrentConfig, "attention", {"kind": "softmax"}),
        (RecurrentEncoderDecoderConfig, "attention", {"kind": "hardmax"}),
        (RecurrentEncoderDecoderConfig, "tie_head", True),
        (WindowConfig, "size", 0),
        (WindowConfig, "d_hidden", 0),
        (WindowConfig, "n_layers", 2),
    ],
)
def test_values_out_of_range_are_refused_by_name(
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
        (WindowConfig(size=3, tie_head=True), "window"),
    ],
    ids=str,
)
def test_a_config_survives_its_plain_form_and_says_its_kind(config: Config, kind: str) -> None:
    plain = msgspec.to_builtins(config)
    assert plain["kind"] == kind
    either = RecurrentConfig | RecurrentEncoderDecoderConfig | WindowConfig
    assert msgspec.convert(plain, either) == config
