"""Exact attention by FlexAttention: masks by block and biases without an n × n tensor, on a GPU."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.attention.mask import Mask
from regard.attention.types import Bias, Keys, Outputs, Queries, RelativeVectors, ScoreMod, Values

MaskMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def can_run(query: Tensor, mask: Mask | None, bias: Bias | RelativeVectors | None) -> bool:
    """Whether FlexAttention supports this call on a GPU, and no fused kernel does."""
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
    """Softmax attention; the output of a fully masked query is zero."""
    run = _compiled() if query.is_cuda else flex_attention
    out = run(
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
    """The bias as a score_mod of FlexAttention, with query positions of the mask."""
    assert isinstance(bias, Bias)
    add, shift = bias.score_mod(), (mask or Mask()).shift(query.shape[2], key.shape[2])
    return lambda score, b, h, q, k: add(score, b, h, q + shift, k)


def block_mask(mask: Mask, query: Tensor, key: Tensor) -> BlockMask:
    """The mask as a BlockMask of FlexAttention, which skips empty blocks."""
    batch, heads, queries, keys = *query.shape[:3], key.shape[2]
    by_row = mask.key_lengths is not None or mask.document_ids is not None
    by_head = mask.blocks is not None and len(mask.blocks.allowed) > 1
    if mask.allowed is not None:
        by_row, by_head = mask.allowed.shape[0] > 1 or by_row, mask.allowed.shape[1] > 1 or by_head
    return create_block_mask(
        mask_mod(mask, queries, keys),
        batch if by_row else None,
        heads if by_head else None,
        queries,
        keys,
        device=query.device,
    )


def mask_mod(mask: Mask, queries: int, keys: int) -> MaskMod:
    """The mask as a function of (row, head, query, key)."""
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


@cache
def _compiled() -> Any:
    """Compiled FlexAttention; eager FlexAttention is slow."""
    return torch.compile(flex_attention, dynamic=False)
