"""Exact attention by FlexAttention: masks by block and biases without an n × n tensor, on a GPU."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from regard.attention.mask import Mask
from regard.attention.types import Bias, Keys, Outputs, Queries, RelativeVectors, ScoreMod, Values
from regard.device import compiled

MaskMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def can_run(query: Tensor, mask: Mask | None, bias: Bias | RelativeVectors | Tensor | None) -> bool:
    """Whether FlexAttention supports this call on a GPU, and no fused kernel does."""
    # Torch compiles nothing under a dispatch mode such as OperationCounter.
    if not torch.compiler.is_compiling() and is_in_torch_dispatch_mode(include_infra_modes=False):
        return False
    if query.dtype == torch.float64 or query.shape[-1] < 16:
        return False
    if bias is not None:
        return isinstance(bias, Bias)
    return mask is not None and not mask.restrictions <= {"alignment", "allowed"}


def attend(
    query: Queries,
    key: Keys,
    value: Values,
    *,
    mask: Mask | None,
    bias: Bias | RelativeVectors | None,
    scale: float,
) -> Outputs:
    """Return softmax attention; the output of a fully masked query is zero."""
    out = _run(
        flex_attention,
        query.is_cuda,
        query,
        key,
        value,
        score_mod=None if bias is None else score_mod(bias, mask, query, key),
        block_mask=None if mask is None else block_mask(mask, query, key),
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(out, Tensor)
    return out


def score_mod(
    bias: Bias | RelativeVectors, mask: Mask | None, query: Tensor, key: Tensor
) -> ScoreMod:
    """Convert a bias to a score_mod of FlexAttention, with query positions of the mask."""
    assert isinstance(bias, Bias)
    add, shift = bias.score_mod(), (mask or Mask()).shift(query.shape[2], key.shape[2])
    return lambda score, b, h, q, k: add(score, b, h, q + shift, k)


def block_mask(mask: Mask, query: Tensor, key: Tensor) -> BlockMask:
    """Convert a mask to a BlockMask of FlexAttention, which skips empty blocks; layers share it."""
    batch, heads, queries, keys = *query.shape[:3], key.shape[2]
    by_row = mask.key_lengths is not None or mask.document_ids is not None
    by_head = mask.blocks is not None and len(mask.blocks.allowed) > 1
    if mask.allowed is not None:
        by_row, by_head = mask.allowed.shape[0] > 1 or by_row, mask.allowed.shape[1] > 1 or by_head
    sizes = batch if by_row else None, heads if by_head else None, queries, keys

    def make() -> BlockMask:
        # A copy of the mask: a cached value that refers to the mask would make a cycle, which only
        # the garbage collector frees.
        allowed = mask_mod(replace(mask), queries, keys)
        made: BlockMask = _run(create_block_mask, query.is_cuda, allowed, *sizes, query.device)
        return made

    return mask.cached(("blocks", *sizes, query.device), make)


def mask_mod(mask: Mask, queries: int, keys: int) -> MaskMod:
    """Convert a mask to a function of (row, head, query, key)."""
    shift, blocks, dense = mask.shift(queries, keys), mask.blocks, mask.allowed

    def allowed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        result = mask.between(b, q + shift, k)
        if blocks is not None:
            pairs = blocks.allowed
            result = result & pairs[h % len(pairs), q // blocks.size, k // blocks.size]
        if dense is not None:
            rows, heads, n, m = dense.shape
            result = result & dense[b % rows, h % heads, q % n, k % m]
        return result

    return allowed


def _run(function: Callable[..., Any], compiles: bool, *args: Any, **options: Any) -> Any:
    """Call a function of FlexAttention, compiled: otherwise it makes a tensor of all pairs."""
    if not compiles or torch.compiler.is_compiling():
        return function(*args, **options)
    with torch._dynamo.config.patch(recompile_limit=KINDS):
        return _compiled(function)(*args, **options)


KINDS = 256
"""Maximum number of graphs in a process: for each kind of mask and bias, head size, dtype.

The default is 8. Beyond the limit, full graphs raise an error.
"""


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    # The second shape compiles for all shapes; `dynamic=False` would compile for each.
    return compiled(function, fullgraph=True)
