"""Mixture of block attention: each query attends to its own block and the most similar others."""

from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import chosen_blocks, reference
from regard.attention.backends import is_plain_causal, repeat_kv
from regard.attention.base import as_dtype, at_least_float32, without_autocast
from regard.attention.cost import Cost, Shape
from regard.attention.mask import Mask, document_starts
from regard.attention.score_config import MobaConfig
from regard.attention.softmax import ScoreAttention, Softmax, highest, just_below
from regard.attention.state import CachedState, KeyValueCache, State, StateShape
from regard.attention.types import AnyBias, DenseBias, Keys, Queries, Weights

LONG = 4
"""Ratio of keys to attended keys from which only the scores of chosen blocks are computed."""
SPARE = 4
"""Additional blocks of `topk`, for ties with the last chosen one."""


@dataclass(frozen=True)
class Places:
    """Block indices of the tokens of each row; rows broadcast."""

    blocks: Int[Tensor, "#batch n"]
    first: Int[Tensor, "#batch n"]
    """The first block of a query's document."""
    number: int
    """Number of blocks."""


@dataclass(frozen=True, eq=False)
class MobaState(CachedState):
    """Keys and values of all tokens, and the sums of the keys of each block."""

    sums: Float[Tensor, "batch kv_heads blocks d"]


class MoBA(Softmax):
    """Softmax over the query's own block of keys and the earlier ones with the highest q·k̄.

    Lu et al., 2025, arXiv:2502.13189; k̄ is the mean key of a block. Blocks restart at each
    document, which must be contiguous. Blocks that tie with the last one chosen are chosen too.

    >>> key = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]]])  # batch, heads, tokens, width
    >>> query = torch.tensor([[[[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]]])
    >>> MoBA(block_size=1, blocks=2).weights(query, key, mask=Mask.causal())[0, 0, 2]
    tensor([0.6698, 0.0000, 0.3302])
    """

    name = "moba"
    supports = MobaConfig.supports

    def __init__(self, *, block_size: int, blocks: int, **options: Any) -> None:
        """`blocks` is the number of blocks that a query attends to, including its own."""
        super().__init__(**options)
        self.block_size, self.blocks = block_size, blocks

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """Softmax over the keys of the chosen blocks."""
        allowed = reference.allowed(query, key, mask)
        wide_query, wide_key = reference.pairs(query, key)
        wide_query, wide_key = wide_query[:, :, :, 0], wide_key[:, :, 0]
        batch, heads, n, _ = query.shape
        kept = torch.zeros_like(allowed)
        for b in range(batch):
            ids = [0] * n if mask.document_ids is None else mask.document_ids[b].tolist()
            real = n if mask.key_lengths is None else int(mask.key_lengths[b])
            for i in range(n):
                start = min(j for j in range(n) if ids[j] == ids[i])
                own = start + (i - start) // self.block_size * self.block_size
                blocks = [range(j, j + self.block_size) for j in range(start, own, self.block_size)]
                for h in range(heads):
                    scores = {
                        block: float(wide_query[b, h, i] @ wide_key[b, h, seen].mean(0))
                        for block in blocks
                        if (seen := [j for j in block if j < real])
                    }
                    best = sorted(scores.values(), reverse=True)[: self.blocks - 1]
                    chosen = [block for block in scores if best and scores[block] >= best[-1]]
                    for block in [*chosen, range(own, i + 1)]:
                        for j in block:
                            kept[b, h, i, j] = allowed[b, h, i, j]
        return reference.softmax(query, key, kept, bias)

    def allowed(self, mask: Mask | None, query: Queries, key: Keys) -> Tensor | None:
        dense, keys = super().allowed(mask, query, key), key.shape[2]
        assert mask is not None
        assert dense is not None
        mask.require_contiguous(self.name)
        hidden = None if mask.key_lengths is None else mask.padding(keys, key.device)
        return self._chosen(query, key, self._places(mask, keys, key.device), hidden) & dense

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        if bias is None and mask is not None and self._is_long(query, key, mask):
            rows = query.shape[:2]
            each = (repeat_kv(x, rows[1]).flatten(0, 1) for x in (query, key, value))
            if (out := self._attend_blocks(*each)) is not None:
                return out.view(*rows, *out.shape[1:])
        return ScoreAttention._forward(self, query, key, value, mask, bias)

    def _is_long(self, query: Tensor, key: Tensor, mask: Mask) -> bool:
        """Whether a call needs only few of the scores, and `_attend_blocks` supports it."""
        most = query.shape[2] >= LONG * self.blocks * self.block_size
        if not most or torch.compiler.is_compiling() or not query.is_cpu:
            return False
        return is_plain_causal(mask, query, key) and self._active_dropout(query) is None

    def _attend_blocks(
        self,
        query: Float[Tensor, "rows n d"],
        key: Float[Tensor, "rows n d"],
        value: Float[Tensor, "rows n e"],
    ) -> Float[Tensor, "rows n e"] | None:
        """Return causal attention to the chosen blocks alone; None if more blocks tie than fit."""
        own = torch.arange(query.shape[1], device=query.device)[:, None] // self.block_size
        choices = own.expand(len(query), -1, 1)
        kept = torch.ones_like(choices, dtype=torch.bool)
        if self.blocks > 1:
            others, chosen = self._earlier_blocks(query, key, own)
            if others.shape[-1] < key.shape[1] // self.block_size and chosen[..., -1].any():
                return None
            choices, kept = torch.cat([choices, others], -1), torch.cat([kept, chosen], -1)
        scaled = query * self.scale(query.shape[-1])
        return chosen_blocks.attend(scaled, key, value, choices, kept, size=self.block_size)

    @torch.no_grad()
    def _earlier_blocks(
        self,
        query: Float[Tensor, "rows n d"],
        key: Float[Tensor, "rows n d"],
        own: Int[Tensor, "n 1"],
    ) -> tuple[Int[Tensor, "rows n most"], Bool[Tensor, "rows n most"]]:
        """Return the best blocks of each query, `SPARE` more than needed, and which are chosen.

        If the last of them is chosen, further blocks may tie with it.
        """
        size, number = self.block_size, key.shape[1] // self.block_size
        with without_autocast(query):
            blocks = at_least_float32(key[:, : number * size]).unflatten(1, (number, size))
            scores = at_least_float32(query) @ blocks.mean(2).mT
        later = torch.arange(number, device=query.device) >= own
        scores = scores.masked_fill_(later, torch.finfo(scores.dtype).min)
        best = scores.topk(min(number, self.blocks - 1 + SPARE))
        least = best.values[..., self.blocks - 2, None]
        return best.indices, (best.values >= just_below(least)) & (best.indices < own)

    def _init_state(self, shape: StateShape) -> "MobaState":
        wide = torch.promote_types(shape.dtype, torch.float32)
        blocks = self._blocks_of_state(shape.capacity)
        sums = torch.zeros(
            shape.batch, shape.kv_heads, blocks, shape.d, device=shape.device, dtype=wide
        )
        return MobaState(KeyValueCache.empty(shape), sums)

    def _blocks_of_state(self, capacity: int) -> int:
        """Return their number, with a spare one: compiled code takes a size of 1 for a constant."""
        return -(-capacity // self.block_size) + 1

    def _extend(  # type: ignore[override]
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, MobaState)
        before, cache = state.cache, state.cache.append(key, value, attention_mask)
        self._add_keys(state.sums, before, key, attention_mask)
        if before.is_empty:
            out = self._forward(query, key, value, Mask(alignment="start"), bias)
        else:
            out = self._attend_state(query, cache, before, state.sums, bias)
        return out, MobaState(cache, state.sums)

    def _add_keys(
        self,
        sums: Float[Tensor, "batch kv_heads blocks d"],
        before: KeyValueCache,
        key: Keys,
        attention_mask: Tensor | None,
    ) -> None:
        """Add new keys to the sums of their blocks."""
        in_one_block = key.shape[2] == 1 and before.is_even and attention_mask is None
        # Code compiled by torch 2.13 would keep the block of the exported example.
        if in_one_block and not torch.compiler.is_compiling():
            sums.narrow(2, before.longest // self.block_size, 1).add_(key)
            return
        added = key.to(sums.dtype)
        blocks = before.positions(key.shape[2])[:, None, :, None] // self.block_size
        if attention_mask is not None:
            blocks = blocks.clamp_max(sums.shape[2] - 1)
            added = added * attention_mask[:, None, :, None]
        sums.scatter_add_(2, blocks.expand_as(added), added)

    def _attend_state(
        self,
        query: Tensor,
        cache: KeyValueCache,
        before: KeyValueCache,
        sums: Float[Tensor, "batch kv_heads blocks d"],
        bias: AnyBias | None,
    ) -> Tensor:
        """Return attention of new tokens to the cache with them."""
        number = sums.shape[2]
        if not torch.compiler.is_compiling():
            number = -(-cache.longest // self.block_size)
            if number <= self.blocks:
                return self._attend_cache(query, cache, before, bias)
            if query.shape[2] == 1 and cache.is_even and bias is None:
                return self._attend_from_last(query, cache, sums, number - 1)
        means = repeat_kv(sums[:, :, :number] / self.block_size, query.shape[1])
        positions = before.positions(query.shape[2])
        own = positions[:, None, :, None] // self.block_size
        each = torch.arange(number, device=query.device)
        with without_autocast(query):
            blocks = self._highest(at_least_float32(query) @ means.mT, each < own) | (each == own)
        seen = self._seen(query, cache, before)
        slots = torch.arange(seen.shape[-1], device=query.device)
        seen = seen & blocks[..., slots // self.block_size]
        return self._attend_seen(query, cache, before, seen, bias)

    def _attend_from_last(
        self, query: Tensor, cache: KeyValueCache, sums: Keys, earlier: int
    ) -> Tensor:
        """Return attention of the last token of rows of equal length, after `earlier` blocks."""
        if self.blocks == 1 or cache.longest >= LONG * self.blocks * self.block_size:
            means = repeat_kv(sums.narrow(2, 0, earlier) / self.block_size, query.shape[1])
            slots = self._chosen_slots(query, means, cache.longest)
            if slots is not None:
                return self._attend_slots(query, cache, slots)
        return self._attend_all_scores(query, cache, earlier)

    def _attend_all_scores(self, query: Tensor, cache: KeyValueCache, earlier: int) -> Tensor:
        """Return attention of the last tokens, from the scores of all keys.

        For few keys, this is faster than averaging keys: q·k̄ is the mean of the q·k.
        """
        keys, values = (at_least_float32(repeat_kv(x, query.shape[1])) for x in cache.filled())
        with without_autocast(query):
            scores = as_dtype(query, keys.dtype) @ keys.mT
            blocks = scores.narrow(-1, 0, earlier * self.block_size).unflatten(-1, (earlier, -1))
            means, kept = blocks.mean(-1, keepdim=True), self.blocks - 1
            least = just_below(means.topk(kept, dim=-2).values.narrow(-2, kept - 1, 1))
            blocks.masked_fill_(means < least, -inf)
            weights = scores.mul_(self.scale(query.shape[-1])).softmax(-1)
            return as_dtype(weights @ values, query.dtype)

    def _chosen_slots(
        self, query: Queries, means: Keys, length: int
    ) -> Int[Tensor, "batch heads slots"] | None:
        """Return the slots of the blocks that the last token attends to; None if blocks tie."""
        heads, size = query.shape[:2], self.block_size
        own = torch.arange(means.shape[2] * size, length, device=query.device).expand(*heads, -1)
        if self.blocks == 1:
            return own
        with without_autocast(query):
            best = (at_least_float32(query) @ means.mT).squeeze(2).topk(self.blocks)
        least, next_best = best.values[..., -2:].unbind(-1)
        if (next_best >= just_below(least)).any():
            return None
        first = best.indices[..., :-1, None] * size
        slots = first + torch.arange(size, device=query.device)
        return torch.cat([slots.flatten(2), own], -1)

    def cost(self, shape: Shape) -> Cost:
        found, blocks = super().cost(shape), self._blocks_of_state(shape.keys)
        means = 2 * shape.batch * shape.heads * shape.pairs * shape.d // self.block_size
        wide = torch.promote_types(shape.dtype, torch.float32).itemsize
        sums = shape.batch * shape.kv_heads * blocks * shape.d * wide
        return replace(
            found,
            operations=found.operations + means * shape.passes,
            state_bytes=found.state_bytes + sums,
        )

    def _pairs(self, shape: Shape) -> float:
        return min(shape.pairs, shape.queries * self.blocks * self.block_size)

    def _places(self, mask: Mask, n: int, device: torch.device) -> Places:
        """Return the blocks of whole rows, which restart at each document."""
        at, ids = torch.arange(n, device=device)[None], mask.document_ids
        if ids is None:
            blocks = at // self.block_size
            return Places(blocks, torch.zeros_like(blocks), -(-n // self.block_size))
        starts = document_starts(ids)
        blocks = ((at - starts) % self.block_size == 0).cumsum(1) - 1
        # The maximum of no block is undefined.
        fixed = torch.compiler.is_compiling() or not blocks.numel()
        number = n if fixed else int(blocks.max()) + 1
        return Places(blocks, blocks.gather(1, starts), number)

    def _chosen(
        self, query: Queries, key: Keys, places: Places, hidden: Tensor | None
    ) -> Bool[Tensor, "batch heads queries keys"]:
        """Return whether a key is in the query's own block, or in a chosen one before it."""
        query, key = at_least_float32(query), at_least_float32(repeat_kv(key, query.shape[1]))
        each = torch.arange(places.number, device=key.device)
        inside = places.blocks[:, :, None] == each
        inside = inside if hidden is None else inside & ~hidden[:, :, None]
        members = inside.to(key.dtype).mT[:, None]
        with without_autocast(query):
            means = (members @ key) / members.sum(-1, keepdim=True).clamp_min(1)
            scores = query @ means.mT
        own = places.blocks[:, :, None]
        earlier = ((each < own) & (each >= places.first[:, :, None]))[:, None]
        earlier = earlier & (members.sum(-1) > 0)[:, :, None]
        chosen = self._highest(scores, earlier) | (each == own)[:, None]
        of_keys = places.blocks[:, None, None].expand(*scores.shape[:3], -1)
        return chosen.gather(-1, of_keys)

    def _highest(self, scores: Weights, earlier: Tensor) -> Bool[Tensor, "batch heads n blocks"]:
        """Return which of the earlier blocks are chosen."""
        if self.blocks == 1:
            return torch.zeros_like(scores, dtype=torch.bool)
        return highest(scores, earlier, self.blocks - 1) & earlier
