"""Linformer: keys and values projected to k rows by learned matrices (Wang et al., 2020)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import reference
from regard.attention.backends import masked
from regard.attention.base import Attention, at_least_float32, without_autocast
from regard.attention.cost import Cost, Shape
from regard.attention.mask import Mask
from regard.attention.score_config import LinformerConfig
from regard.attention.state import RowState, State
from regard.attention.types import AnyBias, DenseBias, Keys, Queries, Weights


@dataclass(frozen=True, eq=False)
class Projected(RowState):
    """Keys and values of another sequence, projected to k rows."""

    key: Float[Tensor, "batch kv_heads k d"]
    value: Float[Tensor, "batch kv_heads k e"]
    length: Int[Tensor, " batch"]


class Linformer(Attention):
    """softmax(Q(EK)ᵀ/√d)·FV with learned E and F of k rows (Wang et al., 2020, eq. 7).

    Not causal: each row of EK is a mixture of all keys.

    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> Linformer(length=64, k=16)(query, key, value).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "linformer"
    supports = LinformerConfig.supports

    def __init__(self, *, length: int, k: int, heads: int | None = None) -> None:
        """For up to `length` keys; E and F per key/value head if `heads` is given, else shared.

        Raises:
            ValueError: k isn't between 1 and `length`.
        """
        super().__init__()
        if not 1 <= k <= length:
            raise ValueError(f"k = {k} rows of {length} keys; choose 1 ≤ k ≤ {length}")
        self.length = length
        self.project_key = nn.Parameter(torch.empty(heads or 1, k, length))
        self.project_value = nn.Parameter(torch.empty(heads or 1, k, length))
        for projection in (self.project_key, self.project_value):
            nn.init.normal_(projection, std=k**-0.5)

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """softmax(Q(EK)ᵀ/√d)·F, where columns of hidden keys in E and F are zero."""
        keys, group = key.shape[2], query.shape[1] // key.shape[1]
        shown = reference.allowed(query, key, mask)[:, ::group, :1].double()
        first, second = (
            (x.detach().double()[:, :, :keys] * shown).repeat_interleave(group, 1)
            for x in (self.project_key, self.project_value)
        )
        projected = first @ key.double().repeat_interleave(group, 1)
        scores = query.double() @ projected.mT / math.sqrt(query.shape[-1])
        return scores.softmax(-1) @ second

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        projected = self._project(key, value, mask.key_lengths if mask else None)
        return self._attend(query, *projected)

    def _weights(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        """softmax(Q(EK)ᵀ/√d)·F: rows need not sum to 1, and may be negative."""
        query, key = at_least_float32(query), at_least_float32(key)
        with without_autocast(query):
            identity = torch.eye(key.shape[2], dtype=key.dtype, device=key.device)
            return self._forward(query, key, identity.expand(*key.shape[:2], -1, -1), mask, bias)

    def _encode_memory(self, key: Tensor, value: Tensor, mask: Mask) -> State:
        assert mask.key_lengths is not None
        return Projected(*self._project(key, value, mask.key_lengths), mask.key_lengths)

    def _attend_memory(self, query: Tensor, memory: State) -> Tensor:
        assert isinstance(memory, Projected)
        return self._attend(query, memory.key, memory.value)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return masked(query, key, value, None, None, scale=query.shape[-1] ** -0.5)

    def cost(self, shape: Shape) -> Cost:
        heads, k, _ = self.project_key.shape
        width, size = shape.d + shape.e, shape.dtype.itemsize
        projected = shape.batch * shape.kv_heads * k * shape.keys * width
        products = projected + shape.batch * shape.heads * shape.queries * k * width
        projections = 2 * heads * k * shape.keys * size
        return Cost(
            operations=2 * products * shape.passes,
            bytes=shape.bytes_in_and_out + projections * shape.passes,
            parameters=self.project_key.numel() + self.project_value.numel(),
            state_bytes=0,
        )

    def _project(self, key: Tensor, value: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return keys and values projected to k rows; those beyond the length count as zero."""
        heads, n = key.shape[1:3]
        if n > self.length:
            raise ValueError(f"this Linformer is for {self.length} keys at most, not {n}")
        if len(self.project_key) not in (1, heads):
            raise ValueError(
                f"this Linformer is for {len(self.project_key)} key heads, not {heads}"
            )
        if lengths is not None:
            beyond = (torch.arange(n, device=key.device) >= lengths[:, None])[:, None, :, None]
            key, value = key.masked_fill(beyond, 0.0), value.masked_fill(beyond, 0.0)
        with without_autocast(key):
            mix_key, mix_value = self.project_key[:, :, :n], self.project_value[:, :, :n]
            return mix_key.to(key.dtype) @ key, mix_value.to(value.dtype) @ value
