"""Attention maps of a text, by layer and head, and the model's prediction."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Bias
from regard.errors import UserError
from regard.explorer.intercept import AttentionRecord
from regard.positions import ShawVectors, rotate

T = TypeVar("T")
_RANGES = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", re.ASCII)


@dataclass(frozen=True, eq=False)
class PositionInfo:
    """Positions added before attention. Biases on scores are part of a layer's record."""

    vectors: Float[Tensor, "n d"] | None = None
    """Position vectors, added to or concatenated with the embeddings."""
    rotation: tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]] | None = None
    """Cosines and signed sines of rotary positions (`regard.positions.rotate`)."""

    def before_rotation(self, x: Float[Tensor, "heads n d"]) -> Float[Tensor, "heads n d"] | None:
        """Return queries or keys before their rotation, if there is one."""
        if self.rotation is None:
            return None
        cos, signed_sin = (part[None, None] for part in self.rotation)
        return rotate(x[None], (cos, -signed_sin))[0]


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer's attention to one text."""

    name: str
    record: AttentionRecord
    heads: tuple[int, ...]
    """The heads to show, from 0."""
    projection: Float[Tensor, "d_model heads_e"] | None = None
    """The output projection W_O, if known."""

    @cached_property
    def value_lengths(self) -> Float[Tensor, "heads keys"] | None:
        """‖v_j W_O‖ of all heads; None if the output projection is unknown."""
        if self.projection is None:
            return None
        values = self.record.value[0, self.record.kv_heads]
        return value_lengths(values, self.projection.to(values.dtype))


def value_lengths(
    values: Float[Tensor, "heads n d"], projection: Float[Tensor, "d_model heads_d"]
) -> Float[Tensor, "heads n"]:
    """Return ‖v_j W_O‖: the norm of a head's output if it attends only to key j.

    The contribution of key j to query i is ‖A[i, j] v_j W_O‖, which is small for a large weight
    on a small value (Kobayashi et al., 2020, arXiv:2004.10102).
    """
    heads, _, d = values.shape
    parts = projection.view(-1, heads, d)
    lengths: Tensor = torch.einsum("hnd,mhd->hnm", values, parts).norm(dim=-1)
    return lengths


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Attention of one kind in all layers: self-attention, or of a target to its source."""

    name: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    layers: tuple[Layer, ...]
    second: int | None = None
    """Position of the second text, if two texts form one sequence."""
    position_info: PositionInfo = field(default_factory=PositionInfo)


SHOWN = 5
"""Largest number of candidates of a prediction."""
ANSWER = "read as a question, first token of the answer"
"""Kind of a prediction after a question, which is encoded as `regard ask` encodes it."""


@dataclass(frozen=True)
class Prediction:
    """The most probable next tokens or labels, with their probabilities."""

    kind: str
    """Next token, label or `ANSWER`."""
    candidates: tuple[tuple[str, float], ...]


def most_probable(kind: str, logits: Float[Tensor, " n"], name: Callable[[int], str]) -> Prediction:
    """Return the candidates with the highest logits, each under its name."""
    values, ids = logits.float().softmax(-1).topk(min(SHOWN, len(logits)))
    pairs = zip(ids.tolist(), values.tolist(), strict=True)
    return Prediction(kind, tuple((name(i), probability) for i, probability in pairs))


@dataclass(frozen=True, eq=False)
class Panel:
    """A model's attention to one text."""

    name: str
    maps: tuple[AttentionMap, ...]
    text: str = ""
    prediction: Prediction | None = None


def kind_of(layer: str, has_target: bool) -> str:
    """Return the kind of attention of a layer of a run, one of the names of `gather_maps`."""
    if not has_target:
        return "self-attention"
    if "cross" in layer or not re.search(r"\bself_attention\b", layer):
        return "decoder to source"
    return "encoder" if ".encoder." in f".{layer}." else "decoder"


def gather_maps(
    records: Sequence[AttentionRecord],
    source: Sequence[str],
    target: Sequence[str] = (),
    second: int | None = None,
    kind_of: Callable[[str, bool], str] = kind_of,
) -> tuple[AttentionMap, ...]:
    """Group records by their kind of attention, in order of first appearance.

    `target` is empty if a model reads one text. The kind follows from a layer's path:
    "self-attention", "encoder", "decoder" or "decoder to source".
    """
    kinds: dict[str, list[AttentionRecord]] = {}
    for record in records:
        kinds.setdefault(kind_of(record.layer, bool(target)), []).append(record)
    maps = []
    for kind, found in kinds.items():
        names = layer_names([record.layer for record in found])
        layers = (
            Layer(name, record, tuple(range(record.weights.shape[1])))
            for name, record in zip(names, found, strict=True)
        )
        queries = source if not target or kind == "encoder" else target
        keys = target if kind == "decoder" else source
        maps.append(AttentionMap(kind, tuple(queries), tuple(keys), tuple(layers), second))
    return tuple(maps)


def layer_names(paths: Sequence[str]) -> list[str]:
    """Return a number for each layer: the first number in its path, if all are distinct.

    Otherwise, number the layers from 0: layers that share their weights have the same path.
    """
    found = [re.search(r"\.(\d+)\.", f".{path}.") for path in paths]
    numbers = [number[1] for number in found if number]
    unique = len(set(numbers)) == len(paths)
    return numbers if unique else [str(place) for place in range(len(paths))]


def choose(
    one: AttentionMap, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> AttentionMap:
    """Return a map with only some layers and heads, numbered from 0.

    Raises:
        UserError: there are no such layers or heads.
    """
    kept = _chosen(one.layers, layers, f"layers of {one.name}")
    shown = [replace(layer, heads=_chosen(layer.heads, heads, "heads")) for layer in kept]
    return replace(one, layers=tuple(shown))


def parse_index_ranges(asked_by: str, text: str) -> list[int]:
    """Parse a list of numbers and ranges: `0,2-3` → [0, 2, 3].

    `asked_by` is the name of the option or field, for error messages.

    Raises:
        UserError: the text isn't such a list.
    """
    plain = "".join(text.split())
    parts = [part.partition("-") for part in plain.split(",")] if _RANGES.fullmatch(plain) else []
    ranges = [range(int(first), int(last or first) + 1) for first, _, last in parts]
    if not (ranges and all(ranges)):
        raise UserError(f"{asked_by} {text}: is not a list of numbers such as 0,2-3")
    return list(chain(*ranges))


def end_of(one: AttentionMap, n: int) -> AttentionMap:
    """Return a map restricted to the last n tokens."""
    cut = max(len(one.keys) - n, 0)
    return replace(
        one,
        queries=one.queries[-n:],
        keys=one.keys[-n:],
        layers=tuple(replace(layer, record=_end(layer.record, n)) for layer in one.layers),
        second=one.second - cut if one.second and one.second > cut else None,
        position_info=PositionInfo(),
    )


def _end(record: AttentionRecord, n: int) -> AttentionRecord:
    return replace(
        record,
        query=record.query[:, :, -n:],
        key=record.key[:, :, -n:],
        value=record.value[:, :, -n:],
        out=record.out[:, :, -n:],
        weights=record.weights[:, :, -n:, -n:],
    )


def _chosen(there: tuple[T, ...], wanted: Sequence[int] | None, what: str) -> tuple[T, ...]:
    if wanted is None:
        return there
    for i in wanted:
        if i not in range(len(there)):
            known = f"there are {len(there)} {what}, numbered from 0"
            raise UserError(f"{known}, not {i}; choose others")
    return tuple(there[i] for i in wanted)


@dataclass(frozen=True, eq=False)
class PositionPicture:
    """Matrices to draw side by side, in one color scale."""

    name: str
    rows: str
    """Meaning of a row: a position, a query, a distance."""
    columns: str
    matrices: Mapping[str, Float[Tensor, "rows columns"]]
    first: int = 0
    """Number of the first row, for its label."""


def position_pictures(one: AttentionMap) -> list[PositionPicture]:
    """Return the pictures of a map's positions; a bias shared by layers is drawn once."""
    found = [*_before_attention(one.position_info)]
    drawn: list[Tensor] = []
    for layer in one.layers:
        picture = _of_bias(layer)
        if picture is None:
            continue
        numbers = torch.stack(list(picture.matrices.values()))
        if not any(numbers.equal(other) for other in drawn):
            drawn.append(numbers)
            found.append(picture)
    return found


def _before_attention(info: PositionInfo) -> Iterator[PositionPicture]:
    if info.vectors is not None:
        vectors = {"vectors": info.vectors}
        yield PositionPicture("added to the embeddings", "position", "dimension", vectors)
    if info.rotation is not None:
        cos, signed_sin = info.rotation
        half = cos.shape[1] // 2
        angles = {"cosines": cos[:, :half], "sines": signed_sin[:, half:]}
        yield PositionPicture("rotation of q and k", "position", "pair of dimensions", angles)


@torch.no_grad()
def _of_bias(layer: Layer) -> PositionPicture | None:
    """Return a bias on scores, by head, or vectors added to keys and values, by distance."""
    bias = layer.record.bias
    if isinstance(bias, ShawVectors):
        vectors = {"on keys": bias.keys.detach(), "on values": bias.values.detach()}
        name = "added to keys and values"
        return PositionPicture(name, "distance", "dimension", vectors, -bias.clip)
    if isinstance(bias, Bias):
        added = bias.dense(*layer.record.positions)
        added = added[0] if added.ndim == 4 else added
        heads = {f"head {head}": added[head] for head in layer.heads}
        name = f"added to the scores, from layer {layer.name}"
        return PositionPicture(name, "query", "key", heads)
    return None
