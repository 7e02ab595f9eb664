"""Layers of different kinds in one stack: a pattern of entries, repeated over its layers.

In an assignment, `gated-deltanet*3+softmax` stands for two entries, the first of three layers;
`deltanet{output_gate=true}` sets options of a mechanism.
Imports no torch.
"""

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Annotated, Any, Literal, TypeAlias, cast

import msgspec
from msgspec import Meta

from regard.attention.config import BUILT_IN, AttentionConfig, config_type
from regard.config import Config, Count, Positive, parse_toml, without_none
from regard.errors import UserError
from regard.positions.config import NoPositionsConfig, RotaryConfig

Activation: TypeAlias = Literal["gelu", "gelu-tanh", "relu", "relu2", "silu"]
Width: TypeAlias = Annotated[int, Meta(ge=0, le=16)]
"""Width of a short convolution."""


MOST = 10_000
"""Largest number of layers that can have separate entries."""


class LayerConfig(Config, frozen=True):
    """Consecutive layers of one kind. Unset fields are inherited from the model."""

    repeat: Positive = 1
    """Number of consecutive layers."""
    attention: AttentionConfig | None = None
    """The attention mechanism."""
    positions: RotaryConfig | NoPositionsConfig | None = None
    """Rotary positions, or none, in a model with rotary positions or none."""
    window: Count | None = None
    """Tokens that a query attends to, itself included; 0: all."""
    n_heads: Positive | None = None
    """Number of attention heads."""
    n_kv_heads: Positive | None = None
    """Number of key/value heads."""
    n_value_heads: Positive | None = None
    """Number of value heads of a gated linear recurrence."""
    head_dim: Positive | None = None
    """Width of a head."""
    qk_norm: bool | None = None
    """RMS norm of each head's queries and keys."""
    short_conv: Width | None = None
    """Width of a causal convolution of queries, keys and values, in tokens; 0: none."""
    canon: str | None = None
    """Places of Canon layers, a subset of ABCD."""
    value_residual: bool | None = None
    """Whether values are mixed with those of the first layer."""
    value_embedding: bool | None = None
    """Whether the layers have a table of vectors that are added to the values, by token."""
    d_ff: Positive | None = None
    """Width of the feed-forward layer."""
    activation: Activation | None = None
    """Activation of the feed-forward layer."""
    gated: bool | None = None
    """Whether a second projection multiplies the activation."""

    @property
    def own(self) -> dict[str, Any]:
        """The fields that are set, other than `repeat`."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "repeat"}
        return {name: value for name, value in fields.items() if value is not None}


def period(pattern: Sequence[LayerConfig]) -> int:
    """Return the number of layers after which a pattern repeats."""
    return sum(entry.repeat for entry in pattern)


def entry_of(pattern: Sequence[LayerConfig], layer: int) -> LayerConfig:
    """Return the entry of a layer, counted from 0."""
    ends = accumulate(entry.repeat for entry in pattern)
    place = layer % period(pattern)
    return next(entry for entry, end in zip(pattern, ends, strict=True) if place < end)


def require_fit(
    pattern: Sequence[LayerConfig], n_layers: int, *, rotary: bool, biased: bool
) -> None:
    """Raise unless a pattern fits a stack.

    `rotary`: positions of the stack are rotary or none. `biased`: they are added to scores.

    Raises:
        ValueError: the pattern is longer than the stack, or sets positions or heads that all
            layers share.
    """
    if (length := period(pattern)) > n_layers:
        raise ValueError(
            f"pattern has {length} layers, and n_layers = {n_layers}: leave some out, or choose a "
            "larger n_layers"
        )
    for i, entry in enumerate(pattern):
        if entry.positions is not None and not rotary:
            raise ValueError(
                f"pattern[{i}].positions: layers can differ in positions only if positions.kind "
                "is rotary or none"
            )
        if biased and (entry.n_heads, entry.head_dim) != (None, None):
            field = "head_dim" if entry.n_heads is None else "n_heads"
            raise ValueError(
                f"pattern[{i}].{field}: all layers share the positions that are added to the "
                "scores of heads; leave it out, or choose rotary positions"
            )


def require_value_heads(n_heads: int, kv_heads: int, value_heads: int) -> None:
    """Raise unless heads of a layer can share key and value heads.

    Raises:
        ValueError: there is no whole number of value heads for each key head or head.
    """
    few, many = sorted((n_heads, value_heads))
    if value_heads % kv_heads:
        raise ValueError(
            f"n_value_heads = {value_heads} is no multiple of n_kv_heads = {kv_heads}: choose a "
            "multiple"
        )
    if many % few:
        raise ValueError(
            f"n_value_heads = {value_heads} doesn't fit n_heads = {n_heads}: choose a divisor or a "
            "multiple of n_heads"
        )


def require_canon(places: str, short_conv: int) -> None:
    """Raise unless `places` are places of Canon layers, and B isn't a second convolution.

    Raises:
        ValueError: a letter is unknown or out of order, or there are two convolutions in one place.
    """
    if not places or not re.fullmatch("off|A?B?C?D?", places):
        raise ValueError(f"canon = {places!r}: choose letters of ABCD, in this order, or off")
    if short_conv and "B" in places:
        raise ValueError(
            f"canon = {places} and short_conv = {short_conv} both convolve queries, keys and "
            "values: leave out B, or set short_conv = 0"
        )


def expand(entries: Sequence[Mapping[str, Any]], n_layers: int) -> list[dict[str, Any]]:
    """Expand the entries of a pattern, as plain values, to one for each layer.

    Raises:
        UserError: there are more than MOST layers, or the pattern is longer than the stack.
    """
    if n_layers > MOST:
        raise UserError(f"n_layers = {n_layers}: at most {MOST:,} layers can be set one by one")
    if not entries:
        return [{} for _ in range(n_layers)]
    if sum(int(one.get("repeat", 1)) for one in entries) > n_layers:
        raise UserError(f"the pattern has more layers than n_layers = {n_layers}")
    period = [{**one, "repeat": 1} for one in entries for _ in range(one.get("repeat", 1))]
    return [deepcopy(period[i % len(period)]) for i in range(n_layers)]


def fold(layers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the shortest pattern of layers as plain values; equal neighbors become one entry."""
    entries: list[dict[str, Any]] = []
    for layer in layers[: _shortest_period(layers)]:
        if entries and {**entries[-1], "repeat": 1} == {**layer, "repeat": 1}:
            entries[-1]["repeat"] += 1
        else:
            entries.append({**layer, "repeat": 1})
    return entries


def _shortest_period(layers: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of layers after which they repeat, or of all layers."""
    lengths = range(1, len(layers))
    return next((n for n in lengths if layers[n:] == layers[: len(layers) - n]), len(layers))


_ENTRY = re.compile(r"(?P<kind>[^{}*]+)(?P<options>\{[^{}]*\})?(?P<times>\*(?P<number>.*))?")
_PLUS = re.compile(r"\+(?![^{}]*\})")
"""A plus outside of options."""


def from_text(text: str) -> list[dict[str, Any]]:
    """Return the entries of a text such as deltanet{output_gate=true}*3+softmax, as plain values.

    Raises:
        UserError: an entry isn't KIND, KIND{OPTION=VALUE}, or one of these times a number.
    """
    return [_entry(part.strip(), text) for part in _PLUS.split(text)]


def _entry(part: str, text: str) -> dict[str, Any]:
    found = _ENTRY.fullmatch(part)
    if found is None:
        raise UserError(
            f"{part!r} in {text!r} is not an entry; write KIND, KIND*3 or KIND{{OPTION=VALUE}}, "
            "and + between entries"
        )
    options = parse_toml(f"options = {found['options'] or '{}'}", where=text)["options"]
    if "kind" in options:
        raise UserError(f"{text}: the kind of {part!r} stands before its options; leave kind out")
    entry = {"attention": {"kind": found["kind"], **options}}
    number = found["number"]
    if not found["times"]:
        return entry
    if not re.fullmatch("[1-9][0-9]{0,8}", number):
        raise UserError(f"{text}: {number!r} is no number of layers; write KIND*3")
    return entry | {"repeat": int(number)}


def concise(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return plain entries without fields that are unset or at their defaults."""
    return [_concise(without_none(entry)) for entry in entries]


def _concise(entry: dict[str, Any]) -> dict[str, Any]:
    attention = entry.get("attention", {})
    if (kind := attention.get("kind")) in BUILT_IN:
        usual = msgspec.to_builtins(config_type(kind)())
        entry = entry | {"attention": {"kind": kind, **_changed(attention, usual)}}
    return _changed(entry, {"repeat": 1})


def _changed(values: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from the usual ones."""
    return {name: value for name, value in values.items() if usual.get(name) != value}


def to_text(entries: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the text of plain entries; None if they set more than built-in mechanisms."""
    parts = list(map(_part, concise(entries)))
    return None if None in parts else "+".join(cast("list[str]", parts))


def _part(entry: dict[str, Any]) -> str | None:
    repeat, attention = entry.pop("repeat", 1), entry.pop("attention", {})
    kind: str = attention.pop("kind", "")
    if entry or kind not in BUILT_IN:
        return None
    options = ",".join(f"{name}={json.dumps(value)}" for name, value in attention.items())
    return kind + (f"{{{options}}}" if attention else "") + (f"*{repeat}" if repeat > 1 else "")
