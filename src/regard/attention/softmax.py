"""Attention by all scores q·k: softmax and argmax."""

import math
import warnings
from abc import abstractmethod
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import flex, reference
from regard.attention.backends import (
    Backend,
    bars,
    causal,
    choose_backend,
    is_plain_causal,
    masked,
    repeat_kv,
)
from regard.attention.base import (
    Attention,
    as_dtype,
    assume_constant_result,
    at_least_float32,
    without_autocast,
)
from regard.attention.config import SCORES, SoftmaxConfig
from regard.attention.cost import Cost, Shape
from regard.attention.gates import NO_GATES, Gates
from regard.attention.mask import Mask
from regard.attention.score_config import ArgmaxConfig
from regard.attention.state import KeyValueCache, Memory, State, StateShape, last_by_head
from regard.attention.types import (
    AnyBias,
    DenseBias,
    Keys,
    PositionedBias,
    Queries,
    Weights,
    adds_vectors,
)
from regard.dropout import Dropout


class ScoreAttention(Attention):
    """Attention whose weights are computed from all scores q·k, by `normalize_scores`."""

    supports = SCORES
    includes_self: ClassVar[bool] = True
    """Whether a token of a causal row attends to itself."""

    def __init__(
        self,
        *,
        scaled: bool = True,
        scale_dim: int | None = None,
        dropout: float = 0.0,
        divisor: int = 1,
    ) -> None:
        """`scaled` divides scores by √d, or by √scale_dim if given; `divisor` always divides them.

        `dropout` is the probability that a weight is set to zero in training.
        """
        super().__init__()
        self.scaled, self.scale_dim, self.divisor = scaled, scale_dim, divisor
        self.dropout = Dropout(dropout)

    @abstractmethod
    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        """Return weights from scores; zero, with zero gradient, in rows without allowed keys."""

    def allowed(self, mask: Mask | None, query: Queries, key: Keys) -> Tensor | None:
        """Return the keys to which each query may attend; None: all."""
        queries, keys = query.shape[2], key.shape[2]
        if mask is None:
            return None
        dense = mask.to_dense(queries, keys, query.device)
        if self.includes_self or not mask.alignment:
            return dense
        places = mask.query_positions(queries, keys, query.device)
        return dense & (torch.arange(keys, device=query.device) < places[:, None])

    def gate_scores(self, gates: Gates) -> Weights | None:
        """Return the term that gates add to the scores; None: none."""
        return None

    def masked_scores(
        self,
        query: Queries,
        key: Keys,
        *,
        mask: Mask | None = None,
        bias: AnyBias | None = None,
        gates: Gates = NO_GATES,
    ) -> tuple[Weights, Bool[Tensor, "#batch #heads queries keys"] | None]:
        """Return the scores with bias and gates, and the allowed keys (None: all).

        `normalize_scores` computes the weights from these.
        """
        self._validate(query, key, mask=mask, bias=bias, gates=gates)
        return self._masked_scores(query, key, mask, bias, gates)

    def _masked_scores(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None, gates: Gates
    ) -> tuple[Tensor, Tensor | None]:
        allowed, gated = self.allowed(mask, query, key), self.gate_scores(gates)
        query, key = at_least_float32(query), at_least_float32(repeat_kv(key, query.shape[1]))
        with without_autocast(query):
            # Not self._scores: that of Forgetting reads its gates from the bias.
            scores = ScoreAttention._scores(self, query, key, _positioned(bias, mask, query, key))
            return scores if gated is None else scores + gated, allowed

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        added = _positioned(bias, mask, query, key)
        return self._attend(query, key, value, self.allowed(mask, query, key), added)

    def _weights(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None, **gates: Any
    ) -> Tensor:
        with without_autocast(query):
            return self.normalize_scores(*self._masked_scores(query, key, mask, bias, gates))

    def _init_state(self, shape: StateShape) -> State:
        return KeyValueCache.empty(shape)

    def _extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
        **gates: Any,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, KeyValueCache)
        before, state = state, state.append(key, value, attention_mask)
        if before.is_empty:
            mask = Mask(alignment="start", window_size=state.window_size)
            return self._forward(query, key, value, mask, bias, **gates), state
        return self._attend_cache(query, state, before, bias), state

    def _extend_last(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
        **gates: Any,
    ) -> tuple[Tensor, State]:
        if type(self)._extend is not ScoreAttention._extend:  # of a custom mechanism
            return super()._extend_last(query, key, value, state, attention_mask, bias, **gates)
        assert isinstance(state, KeyValueCache)
        state = state.append(key, value, attention_mask)
        before = replace(state, shortest=state.shortest - 1, longest=state.longest - 1)
        last = last_by_head(query, attention_mask)
        return self._attend_cache(last, state, before, bias), state

    def _attend_cache(
        self, query: Tensor, cache: KeyValueCache, before: KeyValueCache, bias: AnyBias | None
    ) -> Tensor:
        """Return attention of new tokens to `cache`, which includes them; `before` doesn't."""
        keys, values = cache.filled()
        if keys.dtype != query.dtype:
            out = self._attend_cache(query.to(keys.dtype), cache, before, bias)
            return out.to(query.dtype)
        window, first = cache.window_size, 0
        # Compiled code takes a size of 1 for a constant: keys are masked there instead of cut off.
        cuts = window is not None or not self.includes_self
        compiling = cuts and torch.compiler.is_compiling()
        if window is not None and not compiling:
            # No new token attends to earlier keys than the first one of the shortest row.
            first = max(before.shortest - window, 0)
            keys, values = keys[:, :, first:], values[:, :, first:]
        sees_all = query.size(2) == 1 and cache.shortest == cache.longest and not compiling
        if sees_all and not self.includes_self:
            keys, values = keys[:, :, :-1], values[:, :, :-1]
        if sees_all and bias is None:
            return self._attend(query, keys, values, None, None)
        positions = before.positions(query.shape[2])
        slots = torch.arange(first, first + keys.shape[2], device=keys.device)
        seen = None if sees_all else self._sees(query.shape[1], positions, slots)
        if window is not None and seen is not None:
            seen = seen & (slots >= positions[:, :, None] - window)[:, None]
        added = None if bias is None else PositionedBias(bias, cache.inside(positions), slots)
        return self._attend(query, keys, values, seen, added)

    def _seen(self, query: Tensor, cache: KeyValueCache, before: KeyValueCache) -> Tensor:
        """Return whether each new token may attend to a slot: (batch, heads or 1, new, slots)."""
        positions = before.positions(query.shape[2])
        slots = torch.arange(cache.filled()[0].shape[2], device=positions.device)
        seen = self._sees(query.shape[1], positions, slots)
        if cache.window_size is not None:
            seen = seen & (slots >= positions[:, :, None] - cache.window_size)[:, None]
        return seen

    def _attend_seen(
        self,
        query: Tensor,
        cache: KeyValueCache,
        before: KeyValueCache,
        seen: Tensor,
        bias: AnyBias | None,
    ) -> Tensor:
        """Return attention of new tokens to the slots that are True."""
        keys, values = cache.filled()
        slots = torch.arange(keys.shape[2], device=keys.device)
        positions = cache.inside(before.positions(query.shape[2]))
        added = None if bias is None else PositionedBias(bias, positions, slots)
        return self._attend(query.to(keys.dtype), keys, values, seen, added).to(query.dtype)

    def _sees(self, heads: int, positions: Tensor, slots: Tensor) -> Tensor:
        """Return whether each new token attends to a slot: (batch, heads or 1, new, slots)."""
        last = positions if self.includes_self else positions - 1
        return (slots <= last[:, :, None])[:, None]

    def _encode_memory(self, key: Tensor, value: Tensor, mask: Mask) -> State:
        return Memory.of(key, value, mask)

    def _attend_memory(self, query: Tensor, memory: State) -> Tensor:
        assert isinstance(memory, Memory)
        if memory.mask is None and query.size(2) == memory.readers == 1:
            return self._attend(query, memory.key, memory.value, None, None)
        if memory.readers == 1:
            return self._forward(query, memory.key, memory.value, memory.mask, None)
        # Rows that share a source become queries of one row, and its keys and values are read once.
        together = query.unflatten(0, (-1, memory.readers)).transpose(1, 2).flatten(2, 3)
        out = self._forward(together, memory.key, memory.value, memory.mask, None)
        apart: Tensor = out.unflatten(2, (memory.readers, -1)).transpose(1, 2).flatten(0, 1)
        return apart

    def cost(self, shape: Shape) -> Cost:
        products = 2 * shape.batch * shape.heads * self._pairs(shape) * (shape.d + shape.e)
        return Cost(
            operations=round(products) * shape.passes,
            bytes=shape.bytes_in_and_out,
            parameters=0,
            state_bytes=shape.cache_bytes,
        )

    def _pairs(self, shape: Shape) -> float:
        """Return the number of pairs of a query and a key whose scores are computed, per head."""
        return shape.pairs

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        added: PositionedBias | None,
    ) -> Tensor:
        key, value = repeat_kv(key, query.shape[1]), repeat_kv(value, query.shape[1])
        with without_autocast(query):
            weights = self.normalize_scores(self._scores(query, key, added), allowed)
            weights = self.dropout(weights)
            out: Tensor = as_dtype(weights, value.dtype) @ value
            return out if added is None else as_dtype(out + added.gather(weights), value.dtype)

    def scale(self, d: int) -> float:
        """Return the factor of q·k, for vectors of width d."""
        return float((self.scale_dim or d) ** -0.5 if self.scaled else 1.0) / self.divisor

    def _scores(self, query: Tensor, key: Tensor, added: PositionedBias | None) -> Tensor:
        query = query * self.scale(query.shape[-1])
        scores: Tensor = query @ key.mT
        return scores if added is None else scores + added.scores(query)


class WideScoreAttention(ScoreAttention):
    """Attention with scores in float32 at least, for mechanisms that are sensitive to rounding."""

    def _scores(self, query: Tensor, key: Tensor, added: PositionedBias | None) -> Tensor:
        return super()._scores(at_least_float32(query), at_least_float32(key), added)


class Softmax(ScoreAttention):
    """softmax(QKᵀ/√d)·V (Vaswani et al., 2017, eq. 1).

    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> Softmax()(query, key, value, mask=Mask.causal()).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "softmax"
    supports = SoftmaxConfig.supports

    def _active_dropout(self, query: Tensor) -> Dropout | None:
        """Return the dropout of weights in training, which fused kernels don't support."""
        if not self.training or self.dropout.p == 0:
            return None
        if query.is_cuda:
            _warn_of_dropout()
        return self.dropout

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """α_ij = exp(q_i·k_j/√d + b_ij) / Σ_l exp(q_i·k_l/√d + b_il) over the allowed keys."""
        d = self.scale_dim or query.shape[-1]
        scale = (1 / math.sqrt(d) if self.scaled else 1.0) / self.divisor
        allowed = reference.allowed(query, key, mask)
        return reference.softmax(query, key, allowed, bias, scale=scale)

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        scale, dropout = self.scale(query.shape[-1]), self._active_dropout(query)
        backend = choose_backend(query, value, mask=mask, bias=bias, dropout=dropout)
        if backend is Backend.FLEX:
            return flex.attend(query, key, value, mask=mask, bias=bias, scale=scale)
        if mask and bias is None and is_plain_causal(mask, query, key):
            return causal(query, key, value, mask, scale=scale, dropout=dropout)
        return super()._forward(query, key, value, mask, bias)

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        return softmax(scores, allowed)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        allowed: Tensor | None,
        added: PositionedBias | None,
    ) -> Tensor:
        if added is not None and adds_vectors(added.bias):
            return super()._attend(query, key, value, allowed, added)
        add = None if added is None else added.scores(query)
        scale, dropout = self.scale(query.shape[-1]), self._active_dropout(query)
        return masked(query, key, value, allowed, add, scale=scale, dropout=dropout)

    def _attend_slots(
        self, query: Tensor, cache: KeyValueCache, slots: Int[Tensor, "#batch heads slots"]
    ) -> Tensor:
        """Return attention of one query per row and head to the keys in some slots."""
        *rows, stored = cache.keys.shape[:3]
        first = torch.arange(0, math.prod(rows) * stored, stored, device=slots.device)
        at = repeat_kv(first.view(rows), slots.shape[1]).unsqueeze(-1) + slots
        keys, values = (
            x.flatten(0, 2).index_select(0, at.flatten()).view(*at.shape, x.shape[3])
            for x in (cache.keys, cache.values)
        )
        out = self._attend(as_dtype(query, keys.dtype), keys, values, None, None)
        return as_dtype(out, query.dtype)


class Argmax(WideScoreAttention):
    """The value of the key with the highest score; of equal scores, the first.

    The gradient is the straight-through estimate: that of softmax instead of that of argmax, which
    is zero (Bengio et al., 2013). Scores are in float32 at least: in bfloat16, many would be equal.

    >>> query = key = torch.eye(3)[None, None]  # batch, heads, tokens, width
    >>> Argmax()(query, key, torch.tensor([[[[1.0], [2.0], [3.0]]]])).flatten()
    tensor([1., 2., 3.])
    """

    name = "argmax"
    supports = ArgmaxConfig.supports

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """1 for the allowed key with the highest score (the first of equals), 0 for the others."""
        allowed = reference.allowed(query, key, mask)
        scores = reference.scores(query, key, bias)
        weights = torch.zeros_like(scores)
        for place in allowed.any(-1).nonzero().tolist():
            row, seen = scores[tuple(place)], allowed[tuple(place)]
            best = max(float(score) for score in row[seen])
            first = min(j for j in range(len(row)) if seen[j] and float(row[j]) == best)
            weights[(*place, first)] = 1.0
        return weights

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        soft = softmax(scores, allowed)
        if not scores.shape[-1]:
            return soft
        barred = scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))
        hard = torch.zeros_like(soft).scatter(-1, barred.argmax(-1, keepdim=True), 1.0)
        if allowed is not None:
            hard = hard.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
        return hard + (soft - soft.detach())  # 0 exactly, but with a gradient


def softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Return softmax over the allowed keys; zero, with zero gradient, in rows without any."""
    if allowed is None:
        return scores.softmax(-1)
    alive = allowed.any(-1, keepdim=True)
    # A dead row is neutralized before the softmax, where it would be NaN.
    return (scores + bars(allowed | ~alive, scores.dtype)).softmax(-1).masked_fill(~alive, 0.0)


ROUNDINGS = 32
"""Rounding errors by which equal scores may differ."""


def highest(
    scores: Float[Tensor, "*rows keys"], allowed: Bool[Tensor, "*#rows keys"] | None, k: int
) -> Bool[Tensor, "*rows keys"]:
    """Return which scores are no less than the k-th highest of the allowed ones, up to rounding."""
    least = torch.finfo(scores.dtype).min
    barred = scores if allowed is None else scores.masked_fill(~allowed, least)
    return barred >= kth_highest(barred, k)


def kth_highest(scores: Float[Tensor, "*rows keys"], k: int) -> Float[Tensor, "*rows 1"]:
    """Return the k-th highest score of each row, lowered by what may be rounding.

    With fewer scores, the lowest.
    """
    # No branch, of which a compiled step would keep one.
    k = torch.sym_min(k, scores.shape[-1])
    return just_below(scores.topk(k).values[..., -1:])


def just_below(score: Tensor) -> Tensor:
    """Return the lowest numbers that may be equal to a score, up to rounding."""
    return torch.sub(score, 1 + score.abs(), alpha=ROUNDINGS * torch.finfo(score.dtype).eps)


@assume_constant_result
def _warn_of_dropout() -> None:
    """Warn once in a process; compiled code warns while it is compiled."""
    _warn_once(
        "dropout of attention weights on a GPU computes all n × n weights, without a fused kernel; "
        "model.attention_dropout=0 avoids this and keeps the dropout elsewhere"
    )


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def _positioned(
    bias: AnyBias | None, mask: Mask | None, query: Tensor, key: Tensor
) -> PositionedBias | None:
    if bias is None:
        return None
    queries, keys = query.shape[2], key.shape[2]
    positions = (mask or Mask()).query_positions(queries, keys, query.device)
    return PositionedBias(bias, positions, torch.arange(keys, device=query.device))
