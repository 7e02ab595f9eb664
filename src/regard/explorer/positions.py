"""Positions of a model as matrices to draw: vectors, rotations and biases."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Bias
from regard.explorer.attention_maps import AttentionMap, Layer, PositionInfo
from regard.positions import ShawVectors


@dataclass(frozen=True, eq=False)
class PositionPicture:
    """Matrices to draw side by side, in one color scale."""

    name: str
    rows: str
    """Meaning of a row: a position, a query, a distance."""
    columns: str
    matrices: Mapping[str, Float[Tensor, "rows columns"]]
    first: int = 0
    """Number of the first row."""


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
    """Numbers added to scores, by head; vectors added to keys and values, by distance."""
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
