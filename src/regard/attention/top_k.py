"""Softmax over the keys with the highest scores, or those that an indexer chooses."""

from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import chosen_keys, reference
from regard.attention.backends import bars, is_plain_causal, masked
from regard.attention.base import at_least_float32, without_autocast
from regard.attention.cost import Cost, Shape
from regard.attention.gates import Gate, Gates
from regard.attention.mask import Mask
from regard.attention.score_config import INDEXED, TopKConfig
from regard.attention.softmax import (
    Softmax,
    WideScoreAttention,
    highest,
    just_below,
    kth_highest,
    softmax,
)
from regard.attention.state import CachedState, KeyValueCache, State, StateShape
from regard.attention.types import AnyBias, DenseBias, Keys, Queries, Weights

LONG = 16
"""Ratio of keys to chosen keys from which only the scores of chosen keys are computed."""


class TopK(WideScoreAttention):
    """Softmax over the k allowed keys of each query that score highest, and any ties.

    Gupta et al., 2021, arXiv:2106.06899. Other keys have weight and gradient 0. Scores that differ
    by no more than rounding are equal, such as those of equal tokens without positions.

    >>> key = torch.eye(3)[None, None]  # batch, heads, tokens, width
    >>> query = torch.tensor([[[[3.0, 2.0, 1.0]]]])
    >>> TopK(k=2).weights(query, key)[0, 0, 0]
    tensor([0.6405, 0.3595, 0.0000])
    """

    name = "top-k"
    supports = TopKConfig.supports

    def __init__(self, *, k: int, **options: Any) -> None:
        super().__init__(**options)
        self.k = k

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """Softmax over the allowed keys that score no less than the k-th of them."""
        allowed = reference.allowed(query, key, mask)
        kept = reference.highest(reference.scores(query, key, bias), allowed, self.k)
        return reference.softmax(query, key, kept, bias)

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        if allowed is not None:
            return softmax(scores, highest(scores, allowed, self.k) & allowed)
        return scores.masked_fill(scores < kth_highest(scores, self.k), -inf).softmax(-1)


IndexScores = Float[Tensor, "batch 1 queries keys"]


@dataclass(frozen=True, eq=False)
class IndexedState(CachedState):
    """Keys and values of all tokens, and the keys of the indexer."""

    index: KeyValueCache
    """Its values have width 0."""


class IndexedTopK(Softmax):
    """Softmax over the k allowed keys of each query with the highest index scores I.

    I_ts = Σ_j w_tj ReLU(q_tj·k_s) for query t, key s and heads j of the indexer (DeepSeek-AI, 2025,
    arXiv:2512.02556, §2.1). All heads of the layer attend to the same keys. The choice passes no
    gradient to the indexer. In training, each call adds Σ_t KL(p_t ‖ softmax(I_t)) to
    `auxiliary_losses`, for p the softmax attention to all allowed keys, averaged over the heads and
    detached. Queries beyond the key lengths of the mask are padding, and add nothing.
    """

    name = "indexed top-k"
    supports = INDEXED
    has_auxiliary_loss = True

    def __init__(self, *, k: int, heads: int, d: int, **options: Any) -> None:
        """For an indexer with this many heads of width d."""
        super().__init__(**options)
        self.k, self.heads, self.d = k, heads, d
        self.gates = (
            Gate("index_query", low=-inf, high=inf, heads=heads, width=d, at="query"),
            Gate("index_key", low=-inf, high=inf, heads=1, width=d),
            Gate("index_weight", low=-inf, high=inf, heads=heads, at="query"),
        )

    def reference(  # type: ignore[override]
        self,
        query: Queries,
        key: Keys,
        mask: Mask,
        bias: DenseBias | None,
        *,
        index_query: Tensor,
        index_key: Tensor,
        index_weight: Tensor,
    ) -> Weights:
        """Softmax over the allowed keys with an index score no less than the k-th of them."""
        allowed = reference.allowed(query, key, mask)
        products = (index_query.double()[:, :, :, None] * index_key.double()[:, :, None]).sum(-1)
        scores = (products.clamp_min(0) * index_weight.double()[..., None]).sum(1, keepdim=True)
        kept = reference.highest(scores.expand(allowed.shape), allowed, self.k)
        return reference.softmax(query, key, kept, bias)

    def _forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: AnyBias | None,
        **gates: Tensor,
    ) -> Tensor:
        if self._is_long(query, key, mask, bias):
            return self._attend_chosen(query, key, value, gates)
        scores, allowed = _index_scores(**gates), self.allowed(mask, query, key)
        if self.training and torch.is_grad_enabled():
            with torch.no_grad():
                dense = self.normalize_scores(*super()._masked_scores(query, key, mask, bias, {}))
                dense = dense.mean(1, keepdim=True)
            # Computed even if discarded: activation checkpointing must repeat the same operations.
            divergence = _divergence(dense, scores, allowed, _real(mask, query, key))
            if self.auxiliary_losses is not None:
                self.auxiliary_losses.append(divergence)
        return super()._forward(query, key, value, self._among(mask, scores, allowed), bias)

    def _is_long(self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None) -> bool:
        """Whether a call needs only few of the scores, and `_attend_chosen` supports it."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or not query.is_cpu:
            return False
        plain = bias is None and mask is not None and is_plain_causal(mask, query, key)
        return plain and query.shape[2] >= LONG * self.k and self._active_dropout(query) is None

    def _attend_chosen(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        """Return causal attention from the scores of chosen keys alone, some queries at a time."""
        n, scaled = query.shape[2], query * self.scale(query.shape[-1])
        size = chosen_keys.GROUP * max(
            1, chosen_keys.SCORES // (self.heads * n * chosen_keys.GROUP)
        )
        out = query.new_empty(*query.shape[:3], value.shape[-1])
        for row, start in product(range(len(query)), range(0, n, size)):
            at = slice(start, start + size)
            seen = min(n, start + size)
            parts = {name: gate[row, None, :, at] for name, gate in gates.items()}
            scores = _index_scores(
                **{**parts, "index_key": gates["index_key"][row, None, :, :seen]}
            )
            inputs = scaled[row, :, at], key[row], value[row]
            out[row, :, at] = self._attend_part(*inputs, scores[0, 0], start)
        return out

    def _attend_part(
        self,
        query: Float[Tensor, "h queries d"],
        key: Float[Tensor, "g n d"],
        value: Float[Tensor, "g n e"],
        scores: Float[Tensor, "queries seen"],
        start: int,
    ) -> Float[Tensor, "h queries e"]:
        """Return attention of the queries from position `start`."""
        least, seen = torch.finfo(scores.dtype).min, scores.shape[1]
        later = torch.ones_like(scores[:, start:], dtype=torch.bool).triu_(1)
        scores[:, start:].masked_fill_(later, least)
        if seen % chosen_keys.GROUP:
            scores = F.pad(scores, (0, -seen % chosen_keys.GROUP), value=least)
        best, chosen = chosen_keys.largest(scores, min(self.k + 1, scores.shape[1]))
        k = min(self.k, scores.shape[1])
        out = chosen_keys.attend(query, key, value, chosen[:, :k].clamp_max(seen - 1))
        too_few, tied = best[:, k - 1] == least, best[:, -1] >= just_below(best[:, -2])
        if len(rest := (too_few | tied).nonzero().squeeze(1)):
            kept = highest(scores[rest], None, self.k) & (scores[rest] > least)
            kept = kept[None, None, :, :seen]
            keys, values = key[None, :, :seen], value[None, :, :seen]
            out[:, rest] = masked(query[None, :, rest], keys, values, kept, None, scale=1.0)[0]
        return out

    def _masked_scores(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None, gates: Gates
    ) -> tuple[Tensor, Tensor | None]:
        restricted = self.restrict(mask, query, key, gates)
        return super()._masked_scores(query, key, restricted, bias, gates)

    def restrict(self, mask: Mask | None, query: Queries, key: Keys, gates: Gates) -> Mask:
        """Return the mask restricted to the chosen keys."""
        return self._among(mask, _index_scores(**gates), self.allowed(mask, query, key))

    def _among(self, mask: Mask | None, scores: IndexScores, allowed: Tensor | None) -> Mask:
        return (mask or Mask()) & Mask.dense(highest(scores, allowed, self.k))

    def _init_state(self, shape: StateShape) -> IndexedState:
        index = replace(shape, kv_heads=1, d=self.d, e=0)
        return IndexedState(KeyValueCache.empty(shape), KeyValueCache.empty(index))

    def _extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
        **gates: Tensor,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, IndexedState)
        before, cache = state.cache, state.cache.append(key, value, attention_mask)
        index_key = gates["index_key"]
        index = state.index.append(index_key, index_key, attention_mask)
        new = IndexedState(cache, index)
        if before.is_empty:
            mask = Mask(alignment="start", window_size=cache.window_size)
            return self._forward(query, key, value, mask, bias, **gates), new
        seen = self._seen(query, cache, before)
        scores = _index_scores(**{**gates, "index_key": index.filled()[0]})
        seen = seen & highest(scores, seen, self.k)
        return self._attend_seen(query, cache, before, seen, bias), new

    def cost(self, shape: Shape) -> Cost:
        found, per_key = super().cost(shape), shape.batch * shape.keys * self.d
        return replace(
            found,
            operations=found.operations
            + round(2 * shape.batch * self.heads * self._pairs(shape) * self.d) * shape.passes,
            state_bytes=found.state_bytes + per_key * shape.dtype.itemsize,
        )


def _index_scores(
    *,
    index_query: Float[Tensor, "batch index_heads queries d"],
    index_key: Float[Tensor, "batch 1 keys d"],
    index_weight: Float[Tensor, "batch index_heads queries"],
) -> IndexScores:
    """Return Σ_j w_tj ReLU(q_tj·k_s), in float32 at least."""
    query, key, weight = map(at_least_float32, (index_query, index_key, index_weight))
    batch, heads, queries, _ = query.shape
    with without_autocast(query):
        products = query.transpose(1, 2).flatten(1, 2) @ key.squeeze(1).mT
        each = F.relu(products, inplace=not torch.is_grad_enabled())
        scores = weight.transpose(1, 2).unsqueeze(2) @ each.view(batch, queries, heads, -1)
    return scores.transpose(1, 2)


def _real(mask: Mask | None, query: Queries, key: Keys) -> Bool[Tensor, "batch queries"] | None:
    """Return which queries are not padding; None: all."""
    if mask is None or mask.key_lengths is None:
        return None
    positions = mask.query_positions(query.shape[2], key.shape[2], query.device)
    return positions < mask.key_lengths[:, None]


def _divergence(
    dense: IndexScores,
    scores: IndexScores,
    allowed: Bool[Tensor, "#b #h #queries #keys"] | None,
    real: Bool[Tensor, "b queries"] | None,
) -> Float[Tensor, ""]:
    """Return Σ_t KL(p_t ‖ softmax(I_t)) of real queries; those without allowed keys add nothing."""
    if allowed is not None:
        allowed = allowed.any(1, keepdim=True)
        scores = scores + bars(allowed | ~allowed.any(-1, keepdim=True), scores.dtype)
    if real is not None:
        dense = dense * real[:, None, :, None]
    logs = torch.where(dense > 0, scores.log_softmax(-1), 0.0)
    divergence: Tensor = (torch.xlogy(dense, dense) - dense * logs).sum()
    return divergence
