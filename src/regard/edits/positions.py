"""Intercept positions of a Transformer: position vectors, or the positions of rotary embeddings.

Learned, sinusoidal and one-hot positions are vectors, added to or concatenated with the embeddings.
Rotary positions are a number for each token, by which a layer rotates queries and keys.

Shapes: b rows, n tokens.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from regard.edits.tokens import Hook, Reader
from regard.explorer.calls import replaced
from regard.models.layers import Layer
from regard.models.tensors import Rope
from regard.models.transformer import Transformer
from regard.positions import Rotary


def rotary_of(stack: Transformer, layer: int) -> Rotary | None:
    """Return the rotary positions of a layer by its number; None for other positions, or none.

    Dynamic scaling also gives None: there, the largest position of a row affects all its rotations.
    """
    kind = dict(enumerate(stack.rotary_of, stack.first_layer)).get(layer)
    found = None if kind is None else stack.rotary[kind]
    return found if isinstance(found, Rotary) else None


def intercept_vectors(
    stack: Transformer, reader: Reader, hook: Hook
) -> AbstractContextManager[None]:
    """Call a hook with the position vectors of each input row."""
    embed, absolute = stack._embed, stack.absolute
    assert absolute is not None
    compute = absolute.forward

    def embedded(input_ids: Tensor, *rest: Any) -> Any:
        def forward(positions: Tensor) -> Tensor:
            vectors = compute(positions)
            vectors = vectors.expand(len(input_ids), *vectors.shape[1:])
            return hook(vectors, reader.now, reader.now)

        with replaced(absolute, forward=forward):
            return embed(input_ids, *rest)

    return replaced(stack, _embed=embedded)


def intercept_rotation(
    layer: Layer, rotary: Rotary, reader: Reader, hook: Hook
) -> AbstractContextManager[None]:
    """Call a hook with the position of each token, and rotate by the positions it returns."""

    def rotated(x: Tensor, rope: Rope) -> Rope:
        tokens = reader.now
        own = tokens.positions.expand(len(x), -1)[..., None].double()
        positions = hook(own, tokens, tokens)
        moved = (positions != own)[:, None]
        cos, sin = rotary.at(positions[..., 0], rope[0].dtype)
        return torch.where(moved, cos, rope[0]), torch.where(moved, sin, rope[1])

    def from_positions(compute: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, rope, *rest, **given: compute(x, rotated(x, rope), *rest, **given)

    forward, extend = from_positions(layer.forward), from_positions(layer.extend)
    return replaced(layer, forward=forward, extend=extend)
