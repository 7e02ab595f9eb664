"""The model's configuration: complete, and impossible ones are refused with a reason."""

from typing import Any

import msgspec
import pytest

from refusals import refusal
from regard.attention.score_config import BigBirdConfig
from regard.config import LONGEST, Config, convert
from regard.models.config import (
    DecoderConfig,
    EncoderDecoderConfig,
    FixedWindowConfig,
    PerceiverConfig,
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
)
from regard.positions.config import (
    LinearScalingConfig,
    Llama3ScalingConfig,
    RotaryConfig,
    T5BiasConfig,
)
from tiny_families import FAMILIES, kind

IDENTITY = "identity is for vanilla cells, and cell = {}: set cell to vanilla"
CONCATENATED = {"kind": "learned", "combine": "concatenate"}
REFUSED: list[tuple[type[Config], dict[str, Any], str]] = [
    # parts that do not fit
    (DecoderConfig, {"n_heads": 3}, "n_heads = 3 doesn't divide d_model = 256: choose a divisor"),
    (DecoderConfig, {"d_model": 13}, "or set head_dim"),
    (DecoderConfig, {"n_kv_heads": 3}, "n_kv_heads = 3 doesn't divide n_heads = 8"),
    (DecoderConfig, {"n_kv_heads": 16}, "n_kv_heads = 16 doesn't divide n_heads = 8"),
    (
        DecoderConfig,
        {"n_kv_heads": 4, "n_value_heads": 6},
        "n_value_heads = 6 is no multiple of n_kv_heads = 4: choose a multiple",
    ),
    (
        DecoderConfig,
        {"n_kv_heads": 1, "n_value_heads": 3},
        "n_value_heads = 3 doesn't fit n_heads = 8: choose a divisor or a multiple of n_heads",
    ),
    (
        DecoderConfig,
        {"parallel_residual": True, "norm": "post"},
        "parallel_residual = true needs norm = pre",
    ),
    # positions
    (DecoderConfig, {"head_dim": 3, "positions": {"kind": "rotary"}}, "even head width, not 3"),
    (DecoderConfig, {"positions": {"kind": "rotary", "dim": 3}}, "positions.dim = 3"),
    (DecoderConfig, {"positions": {"kind": "rotary", "dim": 34}}, "positions.dim = 34"),
    (
        DecoderConfig,
        {"positions": {"kind": "rotary", "dim": 2, "scaling": {"kind": "dynamic"}}},
        "at least four",
    ),
    (DecoderConfig, {"positions": {"kind": "learned", "width": 3}}, "leave it out, or set"),
    (
        DecoderConfig,
        {"positions": {"kind": "sinusoidal", "combine": "concatenate", "width": 5}},
        "need an even width, not 5",
    ),
    (
        DecoderConfig,
        {"d_model": 15, "n_heads": 3, "positions": {"kind": "sinusoidal"}},
        "need an even width, not 15",
    ),
    (
        DecoderConfig,
        {"context_length": 257, "positions": {"kind": "one-hot"}},
        "one-hot positions of a context of 257 don't fit",
    ),
    (
        DecoderConfig,
        {"context_length": 256, "positions": {"kind": "one-hot", "combine": "concatenate"}},
        "leave no width for tokens",
    ),
    (DecoderConfig, {"positions": {**CONCATENATED, "width": 256}}, "leave no width for tokens"),
    (DecoderConfig, {"positions": CONCATENATED, "tie_head": True}, "add the positions instead"),
    (T5BiasConfig, {"max_distance": 16}, "choose more than 16"),
    (T5BiasConfig, {"buckets": 5, "bidirectional": True}, "can't be halved"),
    (Llama3ScalingConfig, {"high_freq_factor": 1.0}, r"high_freq_factor = 1\.0 must be greater"),
    (BigBirdConfig, {"window": 2}, "window = 2 has no middle"),
    # other families
    (PerceiverConfig, {"n_layers": 2}, "kind = perceiver has a first, a last and inner"),
    (PerceiverConfig, {"n_latents": 129}, "n_latents = 129 is more than context_length = 128"),
    (PerceiverConfig, {"norm": "post"}, "norm = post: is not supported by kind = perceiver"),
    *(
        (PerceiverConfig, {field: value}, f"{field}: is not supported by kind = perceiver; leave")
        for field, value in {"pattern": [{}], "window": 3, "short_conv": 3, "qk_norm": True}.items()
    ),
    *(
        (PerceiverConfig, {"positions": {"kind": kind}}, f"= {kind}: kind = perceiver adds")
        for kind in ("rotary", "alibi")
    ),
    *(
        (config, {"cell": cell, "activation": "identity"}, IDENTITY.format(cell))
        for config in (RecurrentConfig, RecurrentEncoderDecoderConfig)
        for cell in ("gru", "lstm")
    ),
    (
        EncoderDecoderConfig,
        {"encoder": {"d_model": 64}, "share_embeddings": True},
        "share_embeddings = true needs embeddings of one width",
    ),
    (EncoderDecoderConfig, {"decoder": {"parallel_residual": True}}, r"decoder\.parallel_residual"),
    (
        EncoderDecoderConfig,
        {"decoder": {"positions": CONCATENATED}, "tie_head": True},
        "tie_head = true needs embeddings of width d_model",
    ),
    # values out of range
    (DecoderConfig, {"context_length": 0}, r"`\$.context_length`"),
    (DecoderConfig, {"n_kv_heads": 0}, r">= 1 - at `\$.n_kv_heads`"),
    (DecoderConfig, {"dropout": 1.0}, r"< 1.0 - at `\$.dropout`"),
    (DecoderConfig, {"activation": "swish"}, r"'swish' - at `\$.activation`"),
    (DecoderConfig, {"tie_head": 1}, r"`bool`.*at `\$.tie_head`"),
    (DecoderConfig, {"positions": {"kind": "rotary", "base": 1.0}}, r"> 1.0 - at `\$.positions.b"),
    (DecoderConfig, {"positions": {"kind": "learned", "base": 2.0}}, r"unknown field `base`"),
    (DecoderConfig, {"n_head": 8}, r"unknown field `n_head`"),
    (RecurrentConfig, {"context_length": 7}, r"`.*context_length.*`"),
    (RecurrentConfig, {"attention": {"kind": "softmax"}}, r"`.*attention.*`"),
    (RecurrentEncoderDecoderConfig, {"attention": {"kind": "hardmax"}}, r"`.*attention.*`"),
    (RecurrentEncoderDecoderConfig, {"tie_head": True}, r"`.*tie_head.*`"),
    (FixedWindowConfig, {"size": 0}, r"`.*size.*`"),
]


def test_what_does_not_fit_is_refused_with_a_reason() -> None:
    for config, fields, reason in REFUSED:
        with refusal(msgspec.ValidationError, reason, f"{config.__name__} {fields}"):
            msgspec.convert(fields, config)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("t5-bias", "max_distance"),
        ("t5-bias", "buckets"),
        ("relative-bias", "clip"),
        ("shaw-vectors", "clip"),
        ("learned", "offset"),
    ],
)
def test_a_table_of_positions_has_no_more_entries_than_the_longest_sequence(
    kind: str, field: str
) -> None:
    positions = {"kind": kind, field: LONGEST + 1}
    with pytest.raises(msgspec.ValidationError, match=f"<= {LONGEST} "):
        msgspec.convert({"positions": positions}, DecoderConfig)


def test_a_config_survives_its_plain_form_and_says_its_kind() -> None:
    for family, config in FAMILIES.items():
        plain = msgspec.to_builtins(config)
        assert plain["kind"] == kind(config)
        assert convert(plain, type(config), where="") == config, family


def test_sizes_have_defaults() -> None:
    config = DecoderConfig(d_model=96, n_heads=6)
    assert (config.d_head, config.kv_heads, config.value_heads) == (16, 6, 6)
    assert DecoderConfig(n_heads=8, n_kv_heads=2).kv_heads == 2


def test_two_rotated_dimensions_need_no_dynamic_scaling() -> None:
    for scaling in (None, LinearScalingConfig(factor=2)):
        config = DecoderConfig(positions=RotaryConfig(dim=2, scaling=scaling))
        assert config.rotary_width == 32
