"""Softmax attention that forgets: a gate of each token lowers the scores of all keys before it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import reference
from regard.attention.backends import masked, repeat_kv
from regard.attention.base import as_dtype, at_least_float32
from regard.attention.cost import Cost, Shape
from regard.attention.gates import Gate
from regard.attention.mask import Mask
from regard.attention.score_config import ForgettingConfig
from regard.attention.softmax import ScoreAttention, Softmax
from regard.attention.state import CachedState, KeyValueCache, State, StateShape
from regard.attention.types import (
    AddedScores,
    AnyBias,
    Bias,
    DenseBias,
    KeyPositions,
    Keys,
    PositionedBias,
    Queries,
    QueryPositions,
    ScoreMod,
    Weights,
)

_Numbers: TypeAlias = Bias | None


@dataclass(frozen=True)
class Forgotten(Bias):
    """Σ_(j < t ≤ i) log f_t, as a difference of cumulative sums, plus another bias."""

    at_queries: Float[Tensor, "batch heads queries"]
    at_keys: Float[Tensor, "batch heads keys"]
    bias: Bias | None

    def dense(self, query_positions: QueryPositions, key_positions: KeyPositions) -> AddedScores:
        """Return the bias of all queries, in their order, and the keys at the given positions."""
        numbers = self.at_queries[..., None] - self.at_keys[..., key_positions].unsqueeze(-2)
        if self.bias is None:
            return numbers
        return numbers + self.bias.dense(query_positions, key_positions)

    def score_mod(self) -> ScoreMod:
        add = None if self.bias is None else self.bias.score_mod()

        def forget(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            score = score if add is None else add(score, row, head, query, key)
            return score + self.at_queries[row, head, query] - self.at_keys[row, head, key]

        return forget


@dataclass(frozen=True, eq=False)
class ForgettingState(CachedState):
    """Keys and values of all tokens, and the sum of the log gates up to each."""

    sums: KeyValueCache
    """The sums as keys of width 1."""


class Forgetting(Softmax):
    """softmax(s_ij + Σ_(j < t ≤ i) log f_t), a gate f_t for each query head and token.

    Lin et al., 2025, arXiv:2503.02130. The gate log_forget is log f_t ≤ 0: batch × heads × tokens.

    >>> x = torch.zeros(1, 1, 3, 8)  # equal tokens
    >>> gates = {"log_forget": torch.full((1, 1, 3), 0.5).log()}
    >>> Forgetting(heads=1).weights(x, x, mask=Mask.causal(), gates=gates)[0, 0, 2]
    tensor([0.1429, 0.2857, 0.5714])
    """

    name = "forgetting"
    supports = ForgettingConfig.supports
    gates = (Gate("log_forget", low=-inf, high=0.0, of="query"),)

    def __init__(self, *, heads: int, **options: Any) -> None:
        """`heads` is the number of query heads."""
        super().__init__(**options)
        self.heads = heads

    def reference(  # type: ignore[override]
        self,
        query: Queries,
        key: Keys,
        mask: Mask,
        bias: DenseBias | None,
        *,
        log_forget: Tensor,
    ) -> Weights:
        """Softmax of q_i·k_j/√d + b_ij + Σ_(j < t ≤ i) log f_t, term by term."""
        allowed = reference.allowed(query, key, mask)
        batch, heads, n = log_forget.shape
        added = torch.zeros(batch, heads, n, n, dtype=torch.float64)
        for i in range(n):
            for j in range(i):
                added[:, :, i, j] = log_forget[:, :, j + 1 : i + 1].double().sum(-1)
        return reference.softmax(
            query, key, allowed, added if bias is None else added + bias.double()
        )

    def gate_scores(self, gates: Mapping[str, Tensor]) -> Tensor | None:
        sums = _sums(gates["log_forget"])
        return sums[..., None] - sums.unsqueeze(-2)

    def _forward(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: AnyBias | None,
        *,
        log_forget: Tensor,
    ) -> Tensor:
        return super()._forward(query, key, value, mask, _forgotten(log_forget, bias))

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        added: PositionedBias | None,
    ) -> Tensor:
        # Kernels add the sums in the precision of the queries, which is too low in bfloat16.
        narrow = at_least_float32(query) is not query
        attend = ScoreAttention._attend if narrow else Softmax._attend
        return attend(self, query, key, value, allowed, added)

    def _scores(self, query: Tensor, key: Tensor, added: PositionedBias | None) -> Tensor:
        assert added is not None
        numbers = cast(Bias, added.bias).dense(added.query_positions, added.key_positions)
        return super()._scores(query, key, None) + numbers

    def _init_state(self, shape: StateShape) -> ForgettingState:
        wide = torch.promote_types(shape.dtype, torch.float32)
        sums = replace(shape, kv_heads=self.heads, d=1, e=0, dtype=wide)
        return ForgettingState(KeyValueCache.empty(shape), KeyValueCache.empty(sums))

    def _extend(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
        *,
        log_forget: Tensor,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, ForgettingState)
        plain = bias is None and attention_mask is None and state.cache.window_size is None
        alike = state.cache.is_even and not state.cache.is_empty
        if plain and alike and query.shape[2] == 1 and not torch.compiler.is_compiling():
            return self._extend_by_one(query, key, value, state, log_forget)
        last = (state.sums.length - 1).clamp_min(0)[:, None, None, None]
        before = state.sums.keys.gather(2, last.expand(-1, self.heads, -1, -1)).squeeze(-1)
        new = _sums(log_forget) + before * (state.length > 0)[:, None, None]
        each = new.unsqueeze(-1)
        sums = state.sums.append(each, each, attention_mask)
        call = query, key, value, state.cache, attention_mask
        if state.cache.is_empty:
            out, cache = super()._extend(*call, bias, log_forget=log_forget)
        else:
            at_keys = sums.filled()[0].squeeze(-1)
            out, cache = super()._extend(*call, Forgotten(new, at_keys, cast(_Numbers, bias)))
        assert isinstance(cache, KeyValueCache)
        return out, ForgettingState(cache, sums)

    def _extend_by_one(
        self, query: Tensor, key: Tensor, value: Tensor, state: ForgettingState, log_forget: Tensor
    ) -> tuple[Tensor, State]:
        """Extend rows of equal length by one token, in few operations."""
        slot = state.cache.longest
        cache = state.cache.append(key, value, None)
        new = (state.sums.keys.select(2, slot - 1) + _bounded(log_forget)).unsqueeze(-1)
        sums = state.sums.append(new, new, None)
        added = new - sums.keys.narrow(2, 0, slot + 1).mT
        keys, values = (repeat_kv(x, self.heads) for x in cache.filled())
        scale, dropout = self.scale(query.shape[-1]), self._active_dropout(query)
        wide = torch.promote_types(keys.dtype, added.dtype)
        query, keys, values = (as_dtype(x, wide) for x in (query, keys, values))
        out = masked(query, keys, values, None, added, scale=scale, dropout=dropout)
        return as_dtype(out, key.dtype), ForgettingState(cache, sums)

    def cost(self, shape: Shape) -> Cost:
        found = super().cost(shape)
        wide = torch.promote_types(shape.dtype, torch.float32).itemsize
        sums = shape.batch * self.heads * shape.keys * wide
        return replace(found, state_bytes=found.state_bytes + sums)


FORGOTTEN = -100.0
"""Lower bound of log gates: differences of sums with −∞ are undefined."""


def _sums(log_forget: Tensor) -> Tensor:
    """Return Σ_(t ≤ i) log f_t of each token i."""
    return _bounded(log_forget).cumsum(-1)


def _bounded(log_forget: Tensor) -> Tensor:
    return at_least_float32(log_forget).clamp_min(FORGOTTEN)


def _forgotten(log_forget: Tensor, bias: AnyBias | None) -> Forgotten:
    sums = _sums(log_forget)
    # FlexAttention has no gradient for a tensor that a score_mod indexes twice.
    return Forgotten(sums, sums.clone(), cast(_Numbers, bias))
