"""Exact attention: every query looks at every key."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.base import Attention, Bias, State, Support
from regard.attention.mask import Mask


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """All keys and values seen. The last slot is a bin for padding and never looked at."""

    keys: Float[Tensor, "batch kv_heads slots d"]
    values: Float[Tensor, "batch kv_heads slots e"]
    length: Int[Tensor, " batch"]

    def select(self, rows: Int[Tensor, " rows"]) -> "KeyValueCache":
        return KeyValueCache(self.keys[rows], self.values[rows], self.length[rows])


class Softmax(Attention):
    """softmax(QKᵀ/√d)·V (Vaswani et al., 2017, eq. 1)."""

    name = "softmax"
    supports = Support(
        masks=frozenset({"alignment", "window_size", "key_lengths", "document_ids", "allowed"}),
        bias=True,
        dropout=True,
        decoding=True,
    )

    def __init__(self, *, dropout: float = 0.0) -> None:
        """`dropout` is the probability that a weight is set to zero in training."""
        super().__init__()
        self.dropout = dropout

    def forward(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        value: Float[Tensor, "batch kv_heads keys e"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "batch heads queries e"]:
        self.require(mask, bias)
        key, value = _for_each_query_head(query, key, value)
        dropout = self.dropout if self.training else 0.0
        if _composed_is_faster(query, key, dropout):
            with torch.autocast(query.device.type, enabled=False):
                weights = _softmax(_scores(query, key, bias), _dense(mask, query, key))
                return F.dropout(weights, dropout) @ value
        if bias is None and _is_plain_causal(mask, query, key):
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=True, dropout_p=dropout
            )
        return _masked_sdpa(query, key, value, _dense(mask, query, key), bias, dropout)

    def weights(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        self.require(mask, bias)
        (key,) = _for_each_query_head(query, key)
        with torch.autocast(query.device.type, enabled=False):
            at_least_float = torch.promote_types(query.dtype, torch.float32)
            query, key = query.to(at_least_float), key.to(at_least_float)
            return _softmax(_scores(query, key, bias), _dense(mask, query, key))

    def start(
        self,
        batch: int,
        kv_heads: int,
        d: int,
        e: int,
        *,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> KeyValueCache:
        return KeyValueCache(
            torch.zeros(batch, kv_heads, capacity + 1, d, device=device, dtype=dtype),
            torch.zeros(batch, kv_heads, capacity + 1, e, device=device, dtype=dtype),
            torch.zeros(batch, device=device, dtype=torch.long),
        )

    def extend(
        self,
        query: Float[Tensor, "batch heads new d"],
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        state: State,
        *,
        keep: Bool[Tensor, "batch new"] | None = None,
    ) -> tuple[Float[Tensor, "batch heads new e"], KeyValueCache]:
        assert isinstance(state, KeyValueCache)
        batch, _, new, _ = key.shape
        bin_slot = state.keys.shape[2] - 1
        position = state.length[:, None] + torch.arange(new, device=key.device)
        grown = state.length + (new if keep is None else keep.sum(1))
        if not torch.compiler.is_compiling() and bool((grown > bin_slot).any()):
            raise ValueError(
                f"the cache holds {bin_slot} tokens, and {int(grown.max())} are wanted"
            )
        slot = position if keep is None else torch.where(keep, position, bin_slot)
        row = torch.arange(batch, device=key.device)[:, None]
        state.keys[row, :, slot] = key.transpose(1, 2).to(state.keys.dtype)
        state.values[row, :, slot] = value.transpose(1, 2).to(state.values.dtype)
        seen = torch.arange(bin_slot + 1, device=key.device) <= position[:, :, None]
        mask = Mask.dense(
            seen[:, None] & (torch.arange(bin_slot + 1, device=key.device) < bin_slot)
        )
        out = self(query, state.keys.to(query.dtype), state.values.to(query.dtype), mask=mask)
        return out, KeyValueCache(state.keys, state.values, grown)


def _for_each_query_head(query: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Repeat key/value heads so that consecutive query heads share one."""
    heads, kv_heads = query.shape[1], tensors[0].shape[1]
    if heads == kv_heads:
        return tensors
    return tuple(tensor.repeat_interleave(heads // kv_heads, dim=1) for tensor in tensors)


def _scores(query: Tensor, key: Tensor, bias: Bias | None) -> Tensor:
    scores: Tensor = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    return scores if bias is None else scores + _dense_bias(bias, query, key)


def _dense_bias(bias: Bias, query: Tensor, key: Tensor) -> Tensor:
    positions = [torch.arange(x.shape[2], device=x.device) for x in (query, key)]
    return bias.dense(positions[0], positions[1]).to(query.dtype)


def _dense(mask: Mask | None, query: Tensor, key: Tensor) -> Tensor | None:
    return None if mask is None else mask.to_dense(query.shape[2], key.shape[2], query.device)


def _softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys; a row that allows none is zero, and so is its gradient."""
    if allowed is None:
        return scores.softmax(-1)
    alive = allowed.any(-1, keepdim=True)
    # A dead row is neutralised before the softmax, which would make NaN of it.
    forbidden = torch.where(alive, float("-inf"), 0.0).to(scores.dtype)
    return torch.where(allowed, scores, forbidden).softmax(-1).masked_fill(~alive, 0.0)


def _masked_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    allowed: Tensor | None,
    bias: Bias | None,
    dropout: float,
) -> Tensor:
    add = None if bias is None else _dense_bias(bias, query, key)
    if allowed is None:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=add, dropout_p=dropout)
    alive = allowed.any(-1, keepdim=True)
    # A dead row is neutralised before the softmax: all its scores are zero, and all are allowed.
    query, allowed = query.masked_fill(~alive, 0.0), allowed | ~alive
    add = allowed if add is None else add.masked_fill(~allowed, float("-inf"))
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=add, dropout_p=dropout)
    return out.masked_fill(~alive, 0.0)


def _is_plain_causal(mask: Mask | None, query: Tensor, key: Tensor) -> bool:
    return (
        mask is not None
        and mask.restrictions == {"alignment"}
        and (mask.alignment == "start" or query.shape[2] == key.shape[2])
    )


def _composed_is_faster(query: Tensor, key: Tensor, dropout: float) -> bool:
    """Whether products and softmax one by one beat the fused kernel.

    On a CPU in bfloat16 they do for short rows, because the fused backward is slow: forward and
    backward took 0.3 of its time at 30 and 64 keys, 0.4 at 128, and 1.1 at 256; in float32 always
    more than its time (two cores with AVX-512; `benchmarks/attention.py`). With dropout, the fused
    kernel isn't to be had.
    """
    if query.device.type != "cpu":
        return False
    return dropout > 0 or (query.dtype == torch.bfloat16 and key.shape[2] <= 128)
