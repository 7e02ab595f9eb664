"""What a page needs to know, as plain values that JSON can hold."""

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.maps import Layer, Map, Side
from regard.explorer.patterns import blocks
from regard.explorer.positions import Picture, pictures
from regard.explorer.steps import has_scores, output, steps
from regard.explorer.words import Comparison, compare_words

LARGEST = 16_000_000
"""Bytes of weights that a page may hold: beyond, browsers grow slow."""
LARGEST_STEPS = 32_000_000
"""Bytes of exact steps; they are read when they are looked at, so more of them do no harm."""
DETAILED = 4
"""Heads of which a page may hold exact queries, keys and steps."""


class TooLargeError(UserError):
    """A page can't show so much smoothly. `fact` leaves out what to do, which depends on where."""

    def __init__(self, fact: str, way: str) -> None:
        super().__init__(f"{fact}: {way}")
        self.fact = fact


Chosen = tuple[int, int, int]
"""Of which map, layer and head, from 0, the exact steps are kept."""


def payload(
    title: str,
    sides: Sequence[Side],
    detailed: Collection[Chosen] = (),
    word: str | None = None,
) -> dict[str, Any]:
    """All that a page shows; `word` is the one that is compared between sides.

    Raises:
        TooLargeError: there are too many numbers.
        UserError: too many heads are to be shown exactly, or a side doesn't have the word.
    """
    size = sum(_bytes(one) for side in sides for one in side.maps)
    if size > LARGEST:
        raise TooLargeError(
            f"{size / 1e6:.0f} MB of weights are more than a page can show smoothly "
            f"({LARGEST / 1e6:.0f} MB)",
            "choose some --layers or --heads, or a shorter text",
        )
    if len(detailed) > DETAILED:
        raise UserError(
            f"exact steps of {len(detailed)} heads are too much for a page; choose {DETAILED}"
        )
    for one in detailed:
        if not any(_has(side, one) for side in sides):
            raise UserError(
                f"steps of layer {one[1]}, head {one[2]}: it isn't among those that are "
                "shown (counted as they are shown); choose another"
            )
    written = [_side(side, detailed) for side in sides]
    exact = sum(_letters(side["details"]) for side in written)
    if exact > LARGEST_STEPS:
        raise TooLargeError(
            f"exact steps of {exact / 1e6:.0f} MB are more than a page can show smoothly "
            f"({LARGEST_STEPS / 1e6:.0f} MB)",
            "choose fewer --steps, or a shorter text",
        )
    return {"title": title, "sides": written, "words": list(_words(sides, word))}


def _letters(value: Any) -> int:
    """Of all texts within a plain value."""
    if isinstance(value, dict | list):
        return sum(map(_letters, value.values() if isinstance(value, dict) else value))
    return len(value) if isinstance(value, str) else 0


def _bytes(one: Map) -> int:
    """Of a map's weights on a page, and of the biases that were added to scores."""
    heads = sum(len(layer.heads) for layer in one.layers)
    drawn = [panel for picture in pictures(one) for panel in picture.panels.values()]
    numbers = heads * len(one.queries) * len(one.keys) + sum(panel.numel() for panel in drawn)
    return numbers * 4 // 3


def _side(side: Side, detailed: Collection[Chosen]) -> dict[str, Any]:
    return {
        "name": side.name,
        "text": side.text,
        "maps": [_map(one) for one in side.maps],
        "details": [_detail(side.maps[one[0]], *one) for one in detailed if _has(side, one)],
    }


def _has(side: Side, chosen: Chosen) -> bool:
    """Whether a head is among those that are shown."""
    where, layer, head = chosen
    layers = side.maps[where].layers if where < len(side.maps) else ()
    return layer < len(layers) and head < len(layers[layer].heads)


def _map(one: Map) -> dict[str, Any]:
    return {
        "name": one.name,
        "queries": one.queries,
        "keys": one.keys,
        "second": one.second,
        "layers": [
            {"name": layer.name, "heads": _heads(layer, one.second)} for layer in one.layers
        ],
        "positions": [_picture(picture) for picture in pictures(one)],
    }


def _heads(layer: Layer, second: int | None) -> list[dict[str, Any]]:
    """Weights, the lengths of values, and of two texts the share of each block."""
    weights, lengths = layer.captured.weights[0], layer.value_lengths
    found: list[dict[str, Any]] = []
    for head in layer.heads:
        one: dict[str, Any] = {"name": str(head)} | pack(_array(weights[head]))
        if lengths is not None:
            one["lengths"] = pack(_array(lengths[[head]]))
        if second:
            one["blocks"] = blocks(weights[head], second).tolist()
        found.append(one)
    return found


def _picture(picture: Picture) -> dict[str, Any]:
    panels = {name: _array(matrix) for name, matrix in picture.panels.items()}
    rows, columns = next(iter(panels.values())).shape
    return {
        "name": picture.name,
        "rows": picture.rows,
        "columns": picture.columns,
        "first": picture.first,
        "shape": [rows, columns],
        "panels": [{"name": name} | pack(matrix) for name, matrix in panels.items()],
    }


def _words(sides: Sequence[Side], word: str | None) -> Iterator[dict[str, Any]]:
    """The words that two sides share, for each two sides and each kind of attention."""
    for first, second in combinations(range(len(sides)), 2):
        for (i, one), (j, other) in product(
            enumerate(sides[first].maps), enumerate(sides[second].maps)
        ):
            compared = compare_words(one, other, word)
            if compared is not None:
                yield {"sides": [first, second], "kinds": [i, j]} | _comparison(compared)


def _comparison(compared: Comparison) -> dict[str, Any]:
    return {
        "pairs": compared.pairs,
        "cosines": _base64(_array(compared.cosines)),
        "distances": _base64(_array(compared.distances)),
        "vectors": [[_base64(_array(part)) for part in side] for side in compared.vectors],
    }


def pack(weights: Float[np.ndarray, "queries keys"]) -> dict[str, str]:
    """A matrix in a byte for each weight: each row has its lowest and its highest as 0 and 255.

    Zero, the commonest weight, is one of them unless a row goes below.
    """
    low = np.minimum(weights.min(1, keepdims=True), 0)
    high = np.maximum(weights.max(1, keepdims=True), low)
    span = np.where(high > low, high - low, 1)
    values = np.rint((weights - low) / span * 255).astype(np.uint8)
    return {"scales": _base64(np.concatenate([low, high], 1)), "values": _text(values.tobytes())}


def _detail(one: Map, where: int, layer: int, head: int) -> dict[str, Any]:
    """The exact steps of a head."""
    captured, number = one.layers[layer].captured, one.layers[layer].heads[head]
    group = captured.query.shape[1] // captured.key.shape[1]
    query, key = captured.query[0, [number]], captured.key[0, [number // group]]
    before = {"q": one.encoding.before(query), "k": one.encoding.before(key)}
    return {
        "map": where,
        "layer": layer,
        "head": head,
        "d": query.shape[-1],
        "q": _base64(_array(query)),
        "k": _base64(_array(key)),
        "v": _base64(_array(captured.value[0, number // group])),
        "output": _base64(_array(output(captured, 0, number))),
        "before": {name: _base64(_array(x)) for name, x in before.items() if x is not None},
        "implied": not has_scores(captured),
        "steps": _steps(steps(captured, 0, number)),
    }


def _steps(found: Sequence[tuple[str, Tensor]]) -> list[dict[str, str]]:
    """Steps with their numbers, as far as those don't follow: the first is the sum of q ∘ k."""
    written = [{"name": found[0][0]}]
    for (_, before), (name, matrix) in pairwise(found):
        hidden = matrix.isinf()
        if hidden.any() and matrix.equal(before.masked_fill(hidden, float("-inf"))):
            bits = np.packbits(hidden.cpu().numpy(), bitorder="little")
            written.append({"name": name, "hidden": _text(bits.tobytes())})
        else:
            written.append({"name": name, "values": _base64(_array(matrix))})
    return written


def _array(x: Tensor) -> Float[np.ndarray, "..."]:
    array: np.ndarray = x.detach().float().cpu().numpy()
    return array


def _base64(x: Float[np.ndarray, "..."]) -> str:
    return _text(np.ascontiguousarray(x, dtype="<f4").tobytes())


def _text(data: bytes) -> str:
    return b64encode(data).decode()
