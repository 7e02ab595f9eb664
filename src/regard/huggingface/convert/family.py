"""Families of Hugging Face models: a table of fields and one of tensors, for import and export."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import torch
from msgspec import structs
from torch import Tensor, nn

from regard.attention.config import SoftmaxConfig
from regard.config import convert
from regard.errors import UserError
from regard.huggingface.convert.fields import (
    REQUIRED,
    WHERE,
    Entry,
    NoCounterpartError,
    Renamed,
    Required,
    Values,
    flat,
    nested,
    refused,
)
from regard.models.attention_layers import SelfAttention
from regard.models.builders import make_model
from regard.models.config import DecoderConfig, EncoderConfig, ModelConfig, TransformerConfig
from regard.models.head_config import (
    EmbeddingHeadConfig,
    HeadConfig,
    LMHeadConfig,
    MaskedLMHeadConfig,
)
from regard.models.pattern import expand, fold
from regard.models.tensors import saved_tensors


@dataclass(frozen=True)
class Layout:
    """Conversion of a tensor's layout from transformers to Regard (load) and back (save)."""

    load: Callable[[Tensor, Any], Tensor]
    save: Callable[[Tensor, Any], Tensor]


@dataclass(frozen=True)
class Stored:
    """Modules or tensors of transformers that, concatenated by rows, form one of Regard's."""

    names: tuple[str, ...]
    layout: Layout = Layout(lambda x, _: x, lambda x, _: x)


def _transposed(x: Tensor, _: Any) -> Tensor:
    return x.mT if x.ndim == 2 else x


TRANSPOSED = Layout(_transposed, _transposed)
"""Layout of transposed matrices, with outputs as columns."""


UNREADABLE = "config.json"
"""Key of the difference if the fields don't describe a valid model."""


@dataclass(frozen=True)
class Written:
    """The config.json of a model."""

    fields: dict[str, Any]
    differences: dict[str, str]
    """Option that the family doesn't support → reason."""
    dropped: list[str]
    """Dropout options that the fields can't hold."""


Fused: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]
"""Fused tensor of transformers → part → rows; a part is named NAME[PART]."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Models of one `model_type`."""

    model_type: str
    architecture: str
    """Name of the class in transformers."""
    config: type[ModelConfig] = DecoderConfig
    head: HeadConfig = field(default_factory=LMHeadConfig)
    fields: tuple[Entry, ...]
    """Fields of config.json; later entries take precedence."""
    other_names: Mapping[str, str] = field(default_factory=dict)
    """Alternative names of fields → names; as in transformers, they take precedence."""
    tensors: Mapping[str, str | tuple[str, ...] | Stored]
    """Module or tensor of Regard → those of transformers; `*` is the number of a layer."""
    variants: Callable[[Any], Mapping[str, str | tuple[str, ...]]] = lambda _: {}
    """Additional tensors, whose names depend on the configuration, even by layer number."""
    fused: Callable[[Any], Fused] = lambda _: {}
    """Fused tensors, which hold several of Regard's, by the configuration."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Patterns of older names, with replacements."""
    unused: str = ""
    """Pattern of tensors to leave out."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Alternative names of tensors in older files → names."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Duplicate tensors in all files → names; the latter take precedence."""
    amend: Callable[[Values, Mapping[str, Tensor]], Values] = lambda hf, _: hf
    """Correct config.json by the tensors beside it."""

    def read_config(self, hf: Values) -> ModelConfig:
        """Return the configuration that a config.json describes.

        Raises:
            UserError: a field is missing or has an unsupported value; the message names it.
        """
        options: dict[str, Any] = {}
        hf = {**hf, **{name: hf[one] for one, name in self.other_names.items() if one in hf}}
        needed = [Required("model_type", self.model_type), Required("quantization_config", None)]
        self._require_direction(hf)
        try:
            for entry in (*needed, *self.fields):
                options |= entry.read(hf)
        except (TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise UserError(f"{WHERE}: is damaged ({error}); restore it from a copy") from None
        return convert(nested(options), self.config, where=WHERE)

    def _require_direction(self, hf: Values) -> None:
        """Check that `is_causal`, which transformers applies to all layers, changes nothing."""
        usual: tuple[bool | None, ...] = ()  # it would change one stack of an encoder–decoder
        if self.config in (EncoderConfig, DecoderConfig):
            usual = (False, None) if self.config is EncoderConfig else (True,)
        if "is_causal" in hf and not any(hf["is_causal"] is value for value in usual):
            supported = repr(usual[0]) if usual else "no is_causal"
            raise refused("is_causal", hf["is_causal"], supported)

    def write_config(self, config: ModelConfig) -> Written:
        """Return the fields of config.json, and the options that it can't express."""
        if not isinstance(config, self.config):
            kind = config.__struct_config__.tag
            reason = f"model.kind = {kind!r}: {self.model_type} models are of another kind"
            return Written({}, {"kind": reason}, [])
        options = self._with_widths(_options(config))
        fields, lacking = dict[str, Any](), dict[str, str]()
        for entry in self.fields:
            try:
                fields |= entry.write(options)
            except NoCounterpartError as error:
                lacking[_part_of(error.option)] = str(error)
            except KeyError:  # an option of another kind of mechanism or positions
                continue
        try:
            again = _options(self.read_config({**fields, "model_type": self.model_type}))
        except UserError as error:
            return Written(fields, {**lacking, UNREADABLE: str(error)}, [])
        return self._compared(fields, lacking, options, again)

    def _with_widths(self, options: Values) -> dict[str, Any]:
        """Return options with explicit widths of feed-forward layers, if config.json needs them."""
        held = (e for e in self.fields if isinstance(e, Renamed) and e.default is REQUIRED)
        widths = [option for entry in held for option in entry.options if option.endswith("d_ff")]
        usual = {name: 4 * options[f"{name.removesuffix('d_ff')}d_model"] for name in widths}
        return {**options, **{name: options[name] or usual[name] for name in widths}}

    def _compared(
        self, fields: dict[str, Any], lacking: dict[str, str], options: Values, theirs: Values
    ) -> Written:
        """Compare options with those that the fields express; dropout matters only in training."""
        names = dict.fromkeys((*options, *theirs))
        different = [name for name in names if options.get(name) != theirs.get(name)]
        differences, dropped = dict(lacking), list[str]()
        for name in different:
            if name.endswith("dropout"):
                dropped.append(f"model.{name} = {options[name]}")
                continue
            differences.setdefault(_part_of(name), self._difference(name, options, theirs))
        return Written(fields, differences, dropped)

    def _difference(self, name: str, options: Values, theirs: Values) -> str:
        """Return a message about a different option; for patterns, the first one of a layer."""
        if name.endswith(".pattern"):
            return f"model.{name}: {self.model_type} models have no layers of different kinds"
        own, other = options.get(name), theirs.get(name)
        if name == "pattern":
            name, own, other = _layer_that_differs(options, theirs)
        return f"model.{name} = {own!r}: {self.model_type} models have {other!r}"

    def head_of(self, tensors: Mapping[str, Tensor]) -> HeadConfig:
        """Return the head of a model; an encoder saved without one gets an embedding head."""
        own = {name for ours, name in self.tensors.items() if ours.startswith("head")}
        modules = {self.name_of_today(name).rpartition(".")[0] for name in tensors}
        headless = isinstance(self.head, MaskedLMHeadConfig) and own.isdisjoint(modules)
        return EmbeddingHeadConfig(width=0) if headless else self.head

    def load_weights(
        self, tensors: Mapping[str, Tensor], config: ModelConfig
    ) -> tuple[dict[str, Tensor], list[str]]:
        """Return the weights for Regard's model, tied ones once, and the names of unused ones.

        For an encoder without a head, they are those of its body.

        Raises:
            UserError: a tensor is missing, unexpected or of another shape; the message names it.
        """
        _require_layers(config, len(tensors))
        given = {self.name_of_today(name): tensor for name, tensor in tensors.items()}
        dropped = [name for name in given if re.fullmatch(self.unused, name)]
        given = {name: tensor for name, tensor in given.items() if name not in dropped}
        table = self._table(config)
        embedding = table.stored(table.embedding).names[0]
        for copy, name in self.copies.items():
            second = given.pop(copy, None)
            if second is not None and not torch.equal(given.setdefault(name, second), second):
                dropped.append(copy)
        given = _merge(given, self.aliases, "only models with one of both can be imported")
        given = _take_apart(given, self.fused(config))
        if embedding not in given:
            raise _missing(embedding)
        model = self.model(config, given[embedding].shape[:1].numel())
        untied = f"set tie_word_embeddings to false in {WHERE} if it is meant to be another"
        given = _merge(given, table.tied(model), untied)
        part = "" if self.head_of(tensors) == self.head else "body."
        saved = {x: one for x, one in saved_tensors(model).items() if x.startswith(part)}
        needed = {name: None for ours in saved for name in table.stored(ours).names}
        for name in needed:
            if name not in given:
                raise _missing(name)
        for name in given:
            if name not in needed:
                raise UserError(f"{name}: a tensor that a model of this {WHERE} doesn't have")
        return {
            ours: _load(given, table.stored(ours), _split(ours, tensor, table, model), config)
            for ours, tensor in saved.items()
        }, dropped

    def save_weights(self, model: nn.Module, config: ModelConfig) -> dict[str, Tensor]:
        """Return the tensors of a model by their names and in their layout."""
        found, table = dict[str, Tensor](), self._table(config)
        for name, tensor in saved_tensors(model).items():
            stored, parts = table.stored(name), _split(name, tensor.detach(), table, model)
            found |= {
                theirs: stored.layout.save(part, config).contiguous()
                for theirs, part in zip(stored.names, parts, strict=True)
            }
        found = _put_together(found, self.fused(config))
        return found | {copy: found[name].clone() for copy, name in self.copies.items()}

    def vocabulary(self, weights: Mapping[str, Tensor]) -> int:
        """Return the number of rows of the embeddings in Regard's weights."""
        return len(weights[_Table(self.tensors).embedding])

    def model(self, config: ModelConfig, vocabulary: int) -> nn.Module:
        """Return a model without weights."""
        with torch.device("meta"):
            return make_model(config, self.head, vocabulary)

    def name_of_today(self, name: str) -> str:
        """Return the current name of a tensor of an older file."""
        for pattern, new in self.renamed:
            name = re.sub(pattern, new, name)
        return name

    def _table(self, config: ModelConfig) -> "_Table":
        return _Table({**self.tensors, **self.variants(config)})


@dataclass(frozen=True)
class _Table:
    """The table of tensors of one model."""

    entries: Mapping[str, str | tuple[str, ...] | Stored]

    @property
    def embedding(self) -> str:
        """Regard's name of the embedding table."""
        body = "body" if "body.embedding" in self.entries else "body.encoder"
        return f"{body}.embedding.weight"

    def stored(self, ours: str) -> Stored:
        """Return the tensors of transformers for one of Regard's."""
        number = re.search(r"\.(\d+)\.", ours)
        pattern = re.sub(r"\.\d+\.", ".*.", ours)
        module, _, parameter = pattern.rpartition(".")
        whole = ours in self.entries or pattern in self.entries
        entry = self.entries[ours if ours in self.entries else pattern if whole else module]
        if not isinstance(entry, Stored):
            entry = Stored((entry,) if isinstance(entry, str) else entry)
        layer, suffix = number[1] if number else "", "" if whole else f".{parameter}"
        names = tuple(name.replace("*", layer) + suffix for name in entry.names)
        return Stored(names, entry.layout)

    def tied(self, model: nn.Module) -> dict[str, str]:
        """Return other names of tied tensors → their first names."""
        first = {id(tensor): name for name, tensor in saved_tensors(model).items()}
        return {
            other: self.stored(first[id(tensor)]).names[0]
            for name, tensor in model.state_dict(keep_vars=True).items()
            if name != first[id(tensor)]
            for other in self.stored(name).names
        }


def _load(
    given: Mapping[str, Tensor], stored: Stored, parts: Sequence[Tensor], config: ModelConfig
) -> Tensor:
    """Return one of Regard's tensors, which has these parts, from those of transformers."""
    for name, part in zip(stored.names, parts, strict=True):
        found, fitting = tuple(given[name].shape), tuple(stored.layout.save(part, config).shape)
        if found != fitting:
            raise UserError(f"{name}: has shape {found}, where {WHERE} makes it {fitting}")
        if not given[name].is_floating_point():
            dtype = str(given[name].dtype).removeprefix("torch.")
            raise UserError(
                f"{name}: has dtype {dtype}: save the model with floating-point weights"
            )
    return torch.cat([stored.layout.load(given[name], config) for name in stored.names])


def _split(ours: str, tensor: Tensor, table: "_Table", model: nn.Module) -> tuple[Tensor, ...]:
    """Return the rows of one of Regard's tensors for each of those of transformers."""
    n, owner = len(table.stored(ours).names), model.get_submodule(ours.rsplit(".", 2)[0])
    rows = [len(tensor) // n] * n
    if n == 3 and isinstance(owner, SelfAttention):
        rows = [heads * owner.d_head for heads in owner.heads]
    return tensor.split_with_sizes(rows)


def _merge(
    given: Mapping[str, Tensor], aliases: Mapping[str, str], remedy: str
) -> dict[str, Tensor]:
    """Return tensors without aliases, which must be equal to the tensors they name."""
    merged = dict(given)
    for alias, name in aliases.items():
        if alias not in merged:
            continue
        tensor = merged.pop(alias)
        if not torch.equal(merged.setdefault(name, tensor), tensor):
            raise UserError(f"{alias}: isn't {name}: {remedy}")
    return merged


def _take_apart(given: Mapping[str, Tensor], fused: Fused) -> dict[str, Tensor]:
    """Return tensors with fused ones replaced by their parts."""
    parted = dict(given)
    for name, parts in fused.items():
        if name not in parted:
            raise _missing(name)
        tensor, rows = parted.pop(name), sum(map(len, parts.values()))
        if not tensor.ndim or len(tensor) != rows:
            shape = tuple(tensor.shape)
            raise UserError(f"{name}: has shape {shape}, where {WHERE} makes it {rows} rows")
        parted |= {f"{name}[{part}]": tensor[list(chosen)] for part, chosen in parts.items()}
    return parted


def _put_together(found: Mapping[str, Tensor], fused: Fused) -> dict[str, Tensor]:
    """Return tensors with parts replaced by fused ones."""
    joined = dict(found)
    for name, parts in fused.items():
        tensors = [joined.pop(f"{name}[{part}]") for part in parts]
        places = torch.tensor([row for rows in parts.values() for row in rows])
        joined[name] = torch.cat(tensors)[places.argsort()]
    return joined


def _require_layers(config: ModelConfig, n_tensors: int) -> None:
    """Check that there are as many tensors as layers, before a model of these is built."""
    options = flat(msgspec.to_builtins(config))
    n_layers = sum(n for name, n in options.items() if name.endswith("n_layers"))
    if n_layers > n_tensors:
        raise UserError(
            f"{WHERE}: describes {n_layers} layers, and there are only {n_tensors} tensors; "
            "restore both from a copy"
        )


def _missing(name: str) -> UserError:
    return UserError(f"{name}: no such tensor: save the whole model, with its head")


def _options(config: ModelConfig) -> dict[str, Any]:
    """Return flat options; attention_dropout is explicit, even if it defaults to dropout."""
    if isinstance(config, TransformerConfig):
        options = flat(_in_one_form(config))
    else:
        options = flat(msgspec.to_builtins(config))
    del options["kind"]
    for name, value in options.items():
        stack, own, _ = name.rpartition("attention_dropout")
        if own and value is None:
            options[name] = options[f"{stack}dropout"]
    return options


def _part_of(option: str) -> str:
    """Return the section of an option, such as `positions` or `encoder.attention`."""
    stack, _, rest = option.partition(".")
    return f"{stack}.{rest.partition('.')[0]}" if stack in ("encoder", "decoder") else stack


def _layer_that_differs(options: Values, theirs: Values) -> tuple[str, Any, Any]:
    """Return the first layer option that differs between two models, and both values."""
    pairs = (expand(one["pattern"], one["n_layers"]) for one in (options, theirs))
    for i, (own, other) in enumerate(zip(*map(list, pairs), strict=False)):
        left, right = {**options, **flat(own)}, {**theirs, **flat(other)}
        for name in dict.fromkeys((*flat(own), *flat(other))):
            if name != "repeat" and left.get(name) != right.get(name):
                return f"layers.{i}.{name}", left.get(name), right.get(name)
    return "pattern", options["pattern"], theirs["pattern"]


def _in_one_form(config: TransformerConfig) -> dict[str, Any]:
    """Return plain values of a stack in canonical form, without a pattern if layers are equal.

    Otherwise, the options are those of the first layer of full softmax attention, and the pattern
    has an entry for each layer with its different options.
    """
    layers = config.layers
    if all(layer == layers[0] for layer in layers):
        plain: dict[str, Any] = msgspec.to_builtins(_without_defaults(layers[0]))
        return plain
    usual = max(layers, key=lambda one: (isinstance(one.attention, SoftmaxConfig), not one.window))
    usual = structs.replace(usual, window=0)
    shared, *each = map(_explicit, [usual, *layers])
    own = [{name: one[name] for name in one if one[name] != shared[name]} for one in each]
    plain = msgspec.to_builtins(_without_defaults(usual))
    return plain | {"pattern": fold(own) if any(own) else []}


def _without_defaults(layer: TransformerConfig) -> TransformerConfig:
    """Return a layer with sizes equal to their defaults left out."""
    width, attention = layer.d_model / layer.n_heads, layer.attention
    if isinstance(attention, SoftmaxConfig) and attention.scale_dim == layer.d_head:
        attention = structs.replace(attention, scale_dim=None)
    return structs.replace(
        layer,
        attention=attention,
        head_dim=None if layer.head_dim == width else layer.head_dim,
        n_kv_heads=None if layer.n_kv_heads == layer.n_heads else layer.n_kv_heads,
    )


def _explicit(layer: TransformerConfig) -> dict[str, Any]:
    """Return the plain values of a layer, with derived sizes made explicit."""
    plain: dict[str, Any] = msgspec.to_builtins(layer)
    heads = {"n_kv_heads": layer.kv_heads, "n_value_heads": layer.value_heads}
    return plain | heads | {"head_dim": layer.d_head}
