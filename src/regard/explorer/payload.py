"""What a page needs to know, as plain values that JSON can hold."""

from base64 import b64encode
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.maps import Layer, Map, Side
from regard.explorer.steps import steps

LARGEST = 16_000_000
"""Bytes of weights that a page may hold: beyond, browsers grow slow."""
DETAILED = 4
"""Heads of which a page may hold exact queries, keys and steps."""

Chosen = tuple[int, int, int]
"""Of which map, layer and head, from 0, the exact steps are kept."""


def payload(title: str, sides: Sequence[Side], detailed: Collection[Chosen] = ()) -> dict[str, Any]:
    """All that a page shows.

    Raises:
        UserError: it would be too large, or too many heads are to be shown exactly.
    """
    size = sum(_bytes(one) for side in sides for one in side.maps)
    if size > LARGEST:
        raise UserError(
            f"{size / 1e6:.0f} MB of weights are more than a page can show smoothly "
            f"({LARGEST / 1e6:.0f} MB): choose some --layers or --heads, or a shorter text"
        )
    if len(detailed) > DETAILED:
        raise UserError(
            f"exact steps of {len(detailed)} heads are too much for a page; choose {DETAILED}"
        )
    for one in detailed:
        if not any(_has(side, one) for side in sides):
            raise UserError(
                f"steps of layer {one[1] + 1}, head {one[2] + 1}: it isn't among those that are "
                "shown (counted as they are shown); choose another"
            )
    return {"title": title, "sides": [_side(side, detailed) for side in sides]}


def _bytes(one: Map) -> int:
    """Of a map's weights on a page."""
    heads = sum(len(layer.heads) for layer in one.layers)
    return heads * len(one.queries) * len(one.keys) * 4 // 3


def _side(side: Side, detailed: Collection[Chosen]) -> dict[str, Any]:
    return {
        "name": side.name,
        "maps": [_map(one) for one in side.maps],
        "details": details(side, detailed),
    }


def details(side: Side, chosen: Collection[Chosen]) -> list[dict[str, Any]]:
    """The exact steps of some heads, of those that the side has."""
    return [_detail(side.maps[one[0]], *one) for one in chosen if _has(side, one)]


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
        "layers": [{"name": layer.name, "heads": _heads(layer)} for layer in one.layers],
    }


def _heads(layer: Layer) -> list[dict[str, Any]]:
    weights = layer.captured.weights[0]
    return [{"name": str(head + 1)} | pack(_array(weights[head])) for head in layer.heads]


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
    query, key = captured.query[0], captured.key[0]
    return {
        "map": where,
        "layer": layer,
        "head": head,
        "d": query.shape[-1],
        "q": _base64(_array(query[number])),
        "k": _base64(_array(key[number // (len(query) // len(key))])),
        "steps": [
            {"name": name, "values": _base64(_array(matrix))}
            for name, matrix in steps(captured, 0, number)
        ],
    }


def _array(x: Tensor) -> Float[np.ndarray, "..."]:
    array: np.ndarray = x.detach().float().cpu().numpy()
    return array


def _base64(x: Float[np.ndarray, "..."]) -> str:
    return _text(np.ascontiguousarray(x, dtype="<f4").tobytes())


def _text(data: bytes) -> str:
    return b64encode(data).decode()
