"""Tensors of models: named shapes, splitting into heads, the longest row, saved tensors.

b rows, n tokens, m tokens of a source, d the width of hidden states or of all heads.
"""

from typing import TypeAlias, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from regard.positions import rotate

TokenIds: TypeAlias = Int[Tensor, "b n"]
SourceIds: TypeAlias = Int[Tensor, "b m"]
Hidden: TypeAlias = Float[Tensor, "b n d"]
"""Hidden states of tokens."""
Lengths: TypeAlias = Int[Tensor, " b"]
"""Number of tokens of each row, without padding."""
TokenMask: TypeAlias = Bool[Tensor, "b n"]
"""True for real new tokens, which come first in their row."""
Heads: TypeAlias = Float[Tensor, "b heads n d_head"]
Rope: TypeAlias = tuple[Tensor, Tensor]
"""Cosines and sines of rotary positions."""


def heads_of(x: Hidden, d_head: int) -> Heads:
    """Split the width into heads."""
    b, n, width = x.shape
    h = width // d_head
    return x.view(b, h, 1, d_head) if n == 1 else x.view(b, n, h, d_head).transpose(1, 2)


def split_heads(x: Hidden, sizes: list[int], d_head: int) -> tuple[Heads, ...]:
    """Split the width into groups of heads, so that their gradients are copied only once."""
    if x.size(1) == 1:
        return heads_of(x, d_head).split_with_sizes(sizes, 1)
    # Gradients of parts of the width are concatenated in the order of the projection.
    parts = x.split_with_sizes([n * d_head for n in sizes], -1)
    return tuple(heads_of(part, d_head) for part in parts)


def rotate_heads(both: Heads, rope: Rope, parts: int) -> Heads:
    """Rotate queries and keys, each part of a head's width by itself."""
    if parts == 1:
        return rotate(both, rope)
    rotated = rotate(torch.cat(both.chunk(parts, -1), 1), rope)
    return torch.cat(rotated.chunk(parts, 1), -1)


def join_heads(heads: Heads) -> Hidden:
    """Concatenate heads."""
    b, _, n, _ = heads.shape
    return heads.reshape(b, 1, -1) if n == 1 else heads.transpose(1, 2).flatten(2)


def require_fit(tokens: int, context_length: int) -> None:
    """Raise for more tokens than the context length.

    Raises:
        ValueError: names both.
    """
    if tokens > context_length:
        raise ValueError(
            f"{tokens} tokens don't fit the model's context length of {context_length}"
        )


def saved_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and saved buffers of a model."""
    kept = model.state_dict(keep_vars=True)
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return dict(model.named_parameters()) | buffers


def merged_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and saved buffers of a model, parametrized ones by their values."""
    kept = {name: t for name, t in saved_tensors(model).items() if ".parametrizations." not in name}
    return kept | {
        f"{path}.{name}": getattr(module, name)
        for path, module in model.named_modules()
        if is_parametrized(module)
        for name in cast("nn.ModuleDict", module.parametrizations)
    }
