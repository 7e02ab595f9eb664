"""Positions as a model really has them: vectors, turns and biases, ready to be drawn."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Bias, Mask
from regard.explorer.capture import Captured
from regard.explorer.encoding import Encoding
from regard.explorer.maps import Layer, Map
from regard.positions import ShawVectors


@dataclass(frozen=True, eq=False)
class Picture:
    """Matrices to be drawn side by side, in one scale of colours."""

    name: str
    rows: str
    """What a row is: a position, a query, a distance."""
    columns: str
    panels: Mapping[str, Float[Tensor, "rows columns"]]
    first: int = 0
    """The number of the first row."""


def pictures(one: Map) -> list[Picture]:
    """What there is to see of the positions of a map; a bias that layers share is drawn once."""
    found = [*_before_attention(one.encoding)]
    drawn: list[Tensor] = []
    for layer in one.layers:
        picture = _of_bias(layer)
        if picture is None:
            continue
        numbers = torch.stack(list(picture.panels.values()))
        if not any(numbers.equal(other) for other in drawn):
            drawn.append(numbers)
            found.append(picture)
    return found


def _before_attention(encoding: Encoding) -> Iterator[Picture]:
    if encoding.vectors is not None:
        panels = {"vectors": encoding.vectors}
        yield Picture("on the embeddings", "position", "dimension", panels)
    if encoding.turn is not None:
        cos, signed_sin = encoding.turn
        half = cos.shape[1] // 2
        panels = {"cosines": cos[:, :half], "sines": signed_sin[:, half:]}
        yield Picture("turns of q and k", "position", "pair of dimensions", panels)


def _of_bias(layer: Layer) -> Picture | None:
    """Numbers on scores by head; vectors on keys and values by distance."""
    bias = layer.captured.bias
    if isinstance(bias, ShawVectors):
        vectors = {"on keys": bias.keys.detach(), "on values": bias.values.detach()}
        return Picture("on keys and values", "distance", "dimension", vectors, -bias.clip)
    if isinstance(bias, Bias):
        added = _added(layer.captured, bias)
        panels = {f"head {head}": added[head] for head in layer.heads}
        return Picture(f"on the scores, from layer {layer.name}", "query", "key", panels)
    return None


@torch.no_grad()
def _added(captured: Captured, bias: Bias) -> Float[Tensor, "heads queries keys"]:
    """What was added to the scores of the first row."""
    queries, keys = captured.query.shape[2], captured.key.shape[2]
    device = captured.key.device
    positions = (captured.mask or Mask()).query_positions(queries, keys, device)
    added = bias.dense(positions, torch.arange(keys, device=device))
    return added[0] if added.ndim == 4 else added
