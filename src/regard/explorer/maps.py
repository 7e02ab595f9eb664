"""The attention of a model, as it is shown: tokens, and matrices layer by layer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.capture import Captured
from regard.explorer.encoding import Encoding
from regard.explorer.patterns import value_lengths

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Layer:
    """What is shown of a layer, on one text."""

    name: str
    captured: Captured
    heads: tuple[int, ...]
    """Which heads are shown, from 0."""
    projection: Float[Tensor, "d_model heads_e"] | None = None
    """What takes the values that all heads gathered to the output, where it is known."""

    @property
    def value_lengths(self) -> Float[Tensor, "heads keys"] | None:
        """‖v_j W_O‖ of each head of the layer, where the projection is known."""
        if self.projection is None:
            return None
        value, heads = self.captured.value[0], self.captured.query.shape[1]
        values = value.repeat_interleave(heads // len(value), 0)
        return value_lengths(values, self.projection.to(values.dtype))


@dataclass(frozen=True, eq=False)
class Map:
    """One kind of attention of a model: of a text to itself, or of a target to its source."""

    name: str
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    layers: tuple[Layer, ...]
    second: int | None = None
    """Where the second of two texts begins, if they are read as one."""
    encoding: Encoding = field(default_factory=Encoding)
    """Positions before attention, as far as they are known."""


@dataclass(frozen=True, eq=False)
class Side:
    """A model that read a text."""

    name: str
    maps: tuple[Map, ...]
    text: str = ""
    """What it read."""


def gather_maps(
    captured: Sequence[Captured],
    source: Sequence[str],
    target: Sequence[str] = (),
    second: int | None = None,
) -> tuple[Map, ...]:
    """What was captured, by kind, in the order in which it was first seen.

    `target` is empty where a model reads one text. Which texts a layer looks from and to follows
    from where it stands in the model.
    """
    kinds: dict[str, list[Captured]] = {}
    for one in captured:
        kinds.setdefault(kind_of(one.layer, bool(target)), []).append(one)
    return tuple(make_map(kind, found, source, target, second) for kind, found in kinds.items())


def make_map(
    kind: str,
    captured: Sequence[Captured],
    source: Sequence[str],
    target: Sequence[str] = (),
    second: int | None = None,
) -> Map:
    """The attention of one kind: "self-attention", "encoder", "decoder", "decoder to source"."""
    return Map(
        name=kind,
        queries=tuple(source if kind in ("self-attention", "encoder") else target),
        keys=tuple(target if kind == "decoder" else source),
        layers=tuple(map(_layer, layer_names([one.layer for one in captured]), captured)),
        second=second,
    )


def kind_of(layer: str, has_target: bool) -> str:
    """What a layer's attention is called: one of the names of `make_map`."""
    if not has_target:
        return "self-attention"
    if "cross" in layer or not re.search(r"\bself_attention\b", layer):
        return "decoder to source"
    return "encoder" if ".encoder." in f".{layer}." else "decoder"


def layer_names(paths: Sequence[str]) -> list[str]:
    """A number for each layer, from 0: the first one in its path, where that tells them apart.

    Otherwise its place: layers that share their weights have one path.
    """
    found = [re.search(r"\.(\d+)\.", f".{path}.") for path in paths]
    numbers = [number[1] for number in found if number]
    unique = len(set(numbers)) == len(paths)
    return numbers if unique else [str(place) for place in range(len(paths))]


def choose(
    one: Map, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
) -> Map:
    """Some layers and heads of a map, from 0.

    Raises:
        UserError: there are no such layers or heads.
    """
    kept = _chosen(one.layers, layers, f"layers of {one.name}")
    shown = [replace(layer, heads=_chosen(layer.heads, heads, "heads")) for layer in kept]
    return replace(one, layers=tuple(shown))


def end_of(one: Map, n: int) -> Map:
    """The last n tokens of a map, where all would be too much."""
    cut = max(len(one.keys) - n, 0)
    return replace(
        one,
        queries=one.queries[-n:],
        keys=one.keys[-n:],
        layers=tuple(replace(layer, captured=_end(layer.captured, n)) for layer in one.layers),
        second=one.second - cut if one.second and one.second > cut else None,
        encoding=Encoding(),
    )


def _end(captured: Captured, n: int) -> Captured:
    return replace(
        captured,
        query=captured.query[:, :, -n:],
        key=captured.key[:, :, -n:],
        value=captured.value[:, :, -n:],
        out=captured.out[:, :, -n:],
        weights=captured.weights[:, :, -n:, -n:],
    )


def _chosen(there: tuple[T, ...], wanted: Sequence[int] | None, what: str) -> tuple[T, ...]:
    if wanted is None:
        return there
    for i in wanted:
        if i not in range(len(there)):
            raise UserError(
                f"there are {len(there)} {what}, counted from 0, and no {i}; choose others"
            )
    return tuple(there[i] for i in wanted)


def _layer(name: str, captured: Captured) -> Layer:
    return Layer(name, captured, tuple(range(captured.weights.shape[1])))
