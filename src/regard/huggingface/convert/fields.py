"""Conversion between fields of config.json and options of Regard.

Options are flat: `d_model`, `positions.base`, `encoder.n_layers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from regard.config import flatten
from regard.errors import UserError
from regard.models.pattern import MOST

Values: TypeAlias = Mapping[str, Any]

WHERE = "config.json"
REQUIRED = object()


class NoCounterpartError(UserError):
    """An option has a value that config.json can't hold."""

    def __init__(self, option: str, value: Any, reason: str) -> None:
        super().__init__(f"model.{option} = {value!r}: {reason}")
        self.option = option


class Entry(Protocol):
    """Part of a family's configuration."""

    def read(self, hf: Values) -> dict[str, Any]:
        """Return options from the fields of config.json.

        Raises:
            UserError: a field is missing or unsupported; the message names it.
        """
        ...

    def write(self, options: Values) -> dict[str, Any]:
        """Return fields of config.json from options.

        Raises:
            NoCounterpartError: an option's value can't be expressed; the message names the option.
        """
        ...


class Renamed:
    """A field with the value of one option, or of several equal ones."""

    def __init__(
        self, name: str, *options: str, default: Any = REQUIRED, values: Values | None = None
    ) -> None:
        """`values` maps values of the field to those of the option, if they differ."""
        self.name, self.options, self.default, self.values = name, options, default, values

    def read(self, hf: Values) -> dict[str, Any]:
        value = hf.get(self.name, self.default)
        if value is REQUIRED:
            raise UserError(
                f"{WHERE}: {self.name} is missing: save the model with its configuration"
            )
        if self.values is not None:
            if value not in self.values:
                raise refused(self.name, value, " or ".join(map(str, self.values)))
            value = self.values[value]
        return dict.fromkeys(self.options, value)

    def write(self, options: Values) -> dict[str, Any]:
        option = self.options[0]
        value = options[option]
        if self.values is not None:
            known = {ours: theirs for theirs, ours in reversed(list(self.values.items()))}
            if value not in known:
                raise NoCounterpartError(option, value, f"has no counterpart in {self.name}")
            value = known[value]
        return {self.name: value}


@dataclass(frozen=True)
class Required:
    """A field that must be null or have a given value, its default."""

    name: str
    value: Any

    def read(self, hf: Values) -> dict[str, Any]:
        if hf.get(self.name) not in (None, self.value):
            raise refused(self.name, hf[self.name], repr(self.value))
        return {}

    def write(self, options: Values) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Constant:
    """An option that all models of a family share."""

    option: str
    value: Any

    def read(self, hf: Values) -> dict[str, Any]:
        return {self.option: self.value}

    def write(self, options: Values) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class Dropout:
    """Dropout of the residual stream and of attention weights."""

    residual: tuple[str, ...]
    """Fields that must be equal; if there are none, dropout is 0."""
    attention: str
    default: float
    stacks: tuple[str, ...] = ("",)
    attention_default: float | None = None
    """Default of attention dropout, if it is another."""

    def read(self, hf: Values) -> dict[str, Any]:
        shares = {name: hf.get(name, self.default) for name in self.residual}
        if len(set(shares.values())) > 1:
            different = ", ".join(f"{name} = {share}" for name, share in shares.items())
            raise UserError(f"{WHERE}: {different}: a model has one of them here; make them equal")
        residual = next(iter(shares.values()), 0.0)
        default = self.default if self.attention_default is None else self.attention_default
        attention = hf.get(self.attention, default)
        values = {
            "dropout": residual,
            "attention_dropout": None if attention == residual else attention,
        }
        return {stack + name: value for stack in self.stacks for name, value in values.items()}

    def write(self, options: Values) -> dict[str, Any]:
        residual, attention = (
            options[self.stacks[0] + name] for name in ("dropout", "attention_dropout")
        )
        attention = residual if attention is None else attention
        return dict.fromkeys(self.residual, residual) | {self.attention: attention}


_SCALING = {
    "linear": {"factor": "factor"},
    "dynamic": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "original_max_position_embeddings": "original_context_length",
    },
}
"""Type of scaling → its fields and their options."""


@dataclass(frozen=True)
class Rope:
    """Rotary positions, in `rope_parameters` or the fields that older files have."""

    partial: float = 1.0
    """Default share of a head that is rotated."""
    older_base: str = "rope_theta"
    older_share: str = "partial_rotary_factor"
    """Names of base and share in older files; transformers ignores those of other families."""

    def read(self, hf: Values) -> dict[str, Any]:
        rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}  # as in transformers
        if any(isinstance(value, Mapping) for value in rope.values()):
            raise refused("rope_parameters", rope, "the same in all layers")
        base = rope.get("rope_theta", hf.get(self.older_base, 10_000.0))
        share = rope.get("partial_rotary_factor", hf.get(self.older_share, self.partial))
        if share != 1.0 and self.partial == 1.0:
            raise refused("partial_rotary_factor", share, "1.0")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", *_SCALING):
            raise refused("rope_type", kind, ", ".join(("default", *_SCALING)))
        d_head = hf.get("head_dim") or hf["hidden_size"] // hf["num_attention_heads"]
        options = {
            "positions.kind": "rotary",
            "positions.base": base,
            "positions.dim": None if share == 1.0 else int(d_head * share),
            "positions.scaling": None,
        }
        if kind == "default":
            return options
        length = "original_max_position_embeddings"
        original = hf.get(length, rope.get(length, hf["max_position_embeddings"]))
        scaling = {"kind": kind}
        for theirs, ours in _SCALING[kind].items():
            scaling |= Renamed(theirs, ours).read({**rope, length: original})
        if kind == "dynamic":  # here, the field is the length before scaling
            scaling["original_context_length"] = hf["max_position_embeddings"]
            options["context_length"] = int(hf["max_position_embeddings"] * rope["factor"])
        return options | {"positions.scaling": scaling}

    def write(self, options: Values) -> dict[str, Any]:
        if options["positions.kind"] != "rotary":
            raise NoCounterpartError("positions.kind", options["positions.kind"], "must be rotary")
        base, dim, scaling = (options[f"positions.{name}"] for name in ("base", "dim", "scaling"))
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
        fields: dict[str, Any] = {self.older_base: base}  # for transformers 4
        if self.partial != 1.0:
            d_head = options["head_dim"] or options["d_model"] // options["n_heads"]
            dim = dim or d_head
            share = dim / d_head if int(dim / d_head * d_head) == dim else (dim + 0.5) / d_head
            rope["partial_rotary_factor"] = share
            fields[self.older_share] = share
        if scaling is not None:
            kind = scaling["kind"]
            rope |= {"rope_type": kind}
            rope |= {theirs: scaling[ours] for theirs, ours in _SCALING[kind].items()}
            fields["rope_scaling"] = rope
            if kind == "dynamic":
                fields["max_position_embeddings"] = scaling["original_context_length"]
        return fields | {"rope_parameters": rope}


def n_layers(hf: Values) -> int:
    """Return the number of layers, of which each can be described.

    Raises:
        UserError: it is missing, no number, or more than MOST.
    """
    number = Renamed("num_hidden_layers", "n_layers").read(hf)["n_layers"]
    if type(number) is not int or not 0 < number <= MOST:
        raise refused("num_hidden_layers", number, f"1 to {MOST:,} layers")
    return number


def layer_kinds(hf: Values, usual: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Return the kind of each layer, or the usual ones if the file lists none.

    Raises:
        UserError: their number isn't that of the layers, or a kind is unknown.
    """
    kinds: Sequence[str] = hf.get("layer_types") or usual
    if len(kinds) != n_layers(hf):
        raise UserError(
            f"{WHERE}: layer_types has {len(kinds)} entries, and num_hidden_layers is "
            f"{n_layers(hf)}; make them equal"
        )
    for kind in kinds:
        if kind not in known:
            raise refused("layer_types", kind, " or ".join(known))
    return kinds


def both(option: str) -> tuple[str, str]:
    """Return the names of an option for encoder and decoder."""
    return f"encoder.{option}", f"decoder.{option}"


def refused(name: str, value: Any, supported: str) -> UserError:
    """Return the error for a field with an unsupported value."""
    return UserError(f"{WHERE}: {name} = {value!r}: only models with {supported} can be imported")


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}
"""Activation in transformers → in Regard; export uses the first of several."""


flat = partial(flatten, whole=("scaling",))
"""Flattens nested options to dotted names; a scaling stays one value."""


def nested(options: Values) -> dict[str, Any]:
    """Return options with dotted names as nested tables."""
    tables: dict[str, Any] = {}
    for name, value in options.items():
        *path, last = name.split(".")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return tables
