"""Block-sparse softmax attention: time and memory grow with the number of allowed blocks."""

import itertools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.attention import reference
from regard.attention.backends import masked
from regard.attention.base import as_static, assume_constant_result
from regard.attention.cost import Cost, Shape
from regard.attention.gates import Gates
from regard.attention.mask import Blocks, Mask
from regard.attention.score_config import BLOCK_SPARSE
from regard.attention.softmax import Softmax
from regard.attention.state import KeyValueCache, State, StateShape
from regard.attention.types import (
    AnyBias,
    Bias,
    DenseBias,
    Keys,
    PositionedBias,
    Queries,
    Weights,
    adds_numbers,
)

_TableOptions: TypeAlias = tuple[int, int, int, int, int, bool, int]
"""The arguments of `_bigbird_table`."""


class BlockSparse(Softmax):
    """Softmax attention in which each block of queries attends to a few blocks of keys.

    On a CPU those blocks are gathered; a GPU runs FlexAttention with a block mask.
    """

    supports = BLOCK_SPARSE

    def __init__(self, *, block_size: int, full_rows: int = 0, reach: int | None = None) -> None:
        """Blocks of `block_size` tokens.

        Without a causal mask, the first `full_rows` blocks of queries attend to all keys. `reach`
        is the largest distance between a query and its keys, in positions; None: no limit.
        """
        super().__init__()
        if block_size < 1:
            raise ValueError(f"a block has at least one token, not {block_size}")
        self.block_size, self.full_rows, self.reach = block_size, full_rows, reach

    @abstractmethod
    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """Softmax over the allowed keys in the blocks of the pattern."""

    @abstractmethod
    def table(
        self, heads: int, blocks: int, *, causal: bool, device: torch.device
    ) -> Int[Tensor, "#heads blocks slots"]:
        """Return the blocks of keys that each block of queries attends to, without repetition.

        Unused slots are −1.
        """

    def pattern(self, heads: int, n: int, *, causal: bool, device: torch.device) -> Mask:
        """Return the mask of this mechanism for `n` tokens."""
        blocks = -(-n // self.block_size)
        allowed = _as_matrix(self.table(heads, blocks, causal=causal, device=device))
        if not causal:
            allowed[:, : self.full_rows] = True
        mask = Mask(blocks=Blocks(self.block_size, allowed), window_size=self.reach)
        return mask & Mask.causal() if causal else mask

    def restrict(self, mask: Mask | None, query: Queries) -> Mask:
        """Return the mask of a call with the pattern."""
        mask, (heads, n) = _self_aligned(mask), query.shape[1:3]
        return mask & self.pattern(heads, n, causal=mask.alignment is not None, device=query.device)

    def _masked_scores(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None, gates: Gates
    ) -> tuple[Tensor, Tensor | None]:
        return super()._masked_scores(query, key, self.restrict(mask, query), bias, gates)

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        assert bias is None or adds_numbers(bias)
        (heads, n), device, mask = query.shape[1:3], query.device, _self_aligned(mask)
        causal = mask.alignment is not None
        table = self.table(heads, -(-n // self.block_size), causal=causal, device=device)
        if query.is_cuda or table.shape[2] >= table.shape[1]:  # gathering saves nothing
            return super()._forward(query, key, value, self.restrict(mask, query), bias)
        mask = mask & Mask(window_size=self.reach)
        rows = self._rows(query, key, value, table, mask, bias)
        return torch.cat(list(rows), 2)[:, :, :n]

    def cost(self, shape: Shape) -> Cost:
        cost = super().cost(shape)
        if shape.mode != "step":
            return cost
        keys, width = self._pairs(shape) / shape.queries + 1, shape.d + shape.e
        moved = shape.batch * shape.heads * keys * width * shape.dtype.itemsize
        return replace(cost, bytes=round(moved))

    def _pairs(self, shape: Shape) -> float:
        causal, blocks = shape.causal or shape.mode == "step", -(-shape.keys // self.block_size)
        table = self.table(shape.heads, blocks, causal=causal, device=torch.device("cpu"))
        attended = (table >= 0).sum(-1).double().expand(shape.heads, -1).clone()
        if not causal:
            attended[:, : self.full_rows] = blocks
        rows = attended[:, blocks - -(-shape.queries // self.block_size) :]
        return float(rows.mean()) * self.block_size * shape.queries

    def _rows(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        table: Int[Tensor, "#heads blocks slots"],
        mask: Mask,
        bias: Bias | None,
    ) -> Iterator[Float[Tensor, "batch heads rows e"]]:
        """Yield outputs, padded to whole blocks, for several blocks of queries at a time."""
        (heads, n), blocks, size = query.shape[1:3], table.shape[1], self.block_size
        row = torch.arange(len(query), device=query.device)[:, None, None, None]
        full = 0 if mask.alignment else min(self.full_rows, blocks)
        if full:
            tokens, first = torch.arange(n, device=query.device), slice(full * size)
            added = None if bias is None else PositionedBias(bias, tokens[first], tokens)
            seen = mask.between(row, tokens[first, None], tokens[None, None, None])
            yield self._attend(query[:, :, first], key, value, seen, added)
        more, row = blocks * size - n, row[..., None]
        # The heads of a layer's projections aren't contiguous: each segment would copy all of them.
        query, key, value = (F.pad(x, (0, 0, 0, more)).contiguous() for x in (query, key, value))
        query = query.unflatten(2, (blocks, size))
        now = torch.arange(n + more, device=query.device).view(1, blocks, size, 1)
        head = torch.arange(heads, device=query.device)[:, None, None, None]
        step = max(_SEGMENT // size, 1)
        for start in range(full, blocks, step):
            part = slice(start, start + step)
            at = self._tokens(table[:, part])[:, :, None]  # heads, blocks, 1, keys
            pairs = mask.between(row, now[None, :, part], at[None]) & (at < n)
            numbers = _added(bias, head, now[:, part], at, query.dtype)
            out = masked(
                query[:, :, part].flatten(1, 2),
                _gather_blocks(key, table[:, part], heads, size),
                _gather_blocks(value, table[:, part], heads, size),
                pairs.expand(-1, heads, *pairs.shape[2:]).flatten(1, 2),
                None if numbers is None else numbers.flatten(0, 1),
                scale=self.scale(query.shape[-1]),
            )
            yield out.unflatten(1, (heads, -1)).flatten(2, 3)

    def _tokens(self, blocks: Int[Tensor, "*n slots"]) -> Int[Tensor, "*n keys"]:
        """Return the positions of all tokens of blocks; negative for block −1."""
        within = torch.arange(self.block_size, device=blocks.device)
        return (blocks[..., None] * self.block_size + within).flatten(-2)


class BigBird(BlockSparse):
    """Global blocks, a window and random blocks (Zaheer et al., 2020, section 2).

    The random blocks are a function of the seed, the head, the block of queries and the block of
    keys, drawn for `max_keys`: the pattern of n tokens is the corner of the pattern of more. With a
    causal mask, they are drawn among the preceding blocks.

    >>> x = torch.zeros(1, 1, 4, 8)  # equal tokens
    >>> attention = BigBird(block_size=1, window=1, random=1, global_blocks=1, max_keys=4)
    >>> attention.weights(x, x, mask=Mask.causal())[0, 0, 3]  # global, random, none, own
    tensor([0.3333, 0.3333, 0.0000, 0.3333])
    """

    name = "bigbird"

    def __init__(
        self,
        *,
        block_size: int = 64,
        window: int = 3,
        random: int = 3,
        global_blocks: int = 2,
        max_keys: int = 4096,
        seed: int = 0,
    ) -> None:
        """`window` blocks around the query's own (an odd number), and `random` other blocks.

        All queries attend to the first `global_blocks` blocks. Without a causal mask, these attend
        to all keys.

        Raises:
            ValueError: the window isn't an odd number of blocks, or a number is negative.
        """
        super().__init__(block_size=block_size, full_rows=global_blocks)
        if window < 1 or window % 2 == 0 or min(random, global_blocks) < 0:
            raise ValueError(
                f"window = {window}, random = {random}, global_blocks = {global_blocks}: "
                "a window is an odd number of blocks, the others are ≥ 0"
            )
        self.window, self.random, self.global_blocks = window, random, global_blocks
        self.max_keys, self.seed = max_keys, seed

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """Softmax over the fixed blocks, and the free blocks with the smallest hashes."""
        blocks, causal = -(-self.max_keys // self.block_size), mask.alignment is not None
        visible = torch.zeros(query.shape[1], blocks, blocks, dtype=torch.bool)
        for head, row in itertools.product(range(query.shape[1]), range(blocks)):
            columns = range(row + 1 if causal else blocks)
            near = {c for c in columns if abs(row - c) <= self.window // 2}
            fixed = near | {c for c in columns if c < self.global_blocks}
            free = sorted(
                set(columns) - fixed, key=lambda c: reference.splitmix64(self.seed, head, row, c)
            )
            everywhere = not causal and row < self.global_blocks
            for column in columns if everywhere else fixed | set(free[: self.random]):
                visible[head, row, column] = True
        place = torch.arange(query.shape[2]) // self.block_size
        visible = visible[:, place[:, None], place]
        return reference.softmax(query, key, reference.allowed(query, key, mask) & visible, bias)

    def table(
        self, heads: int, blocks: int, *, causal: bool, device: torch.device
    ) -> Int[Tensor, "heads blocks slots"]:
        self._require_drawn(blocks)
        drawn: Tensor = _drawn(*self._table_options(heads, causal=causal))
        drawn = drawn.to(device)[:, :blocks]
        return drawn.masked_fill(drawn >= blocks, -1)

    def _require_drawn(self, blocks: int) -> None:
        """Raise if `max_keys` tokens have fewer blocks."""
        if blocks > -(-self.max_keys // self.block_size):
            raise ValueError(
                f"{blocks} blocks of {self.block_size} are more than max_keys = {self.max_keys}; "
                "make this BigBird with a larger max_keys"
            )

    def _table_options(self, heads: int, *, causal: bool) -> _TableOptions:
        """Return the arguments of `_bigbird_table`, for `max_keys` tokens."""
        blocks, side = -(-self.max_keys // self.block_size), self.window // 2
        return heads, blocks, side, self.random, self.global_blocks, causal, self.seed

    def _init_state(self, shape: StateShape) -> State:
        self._require_drawn(-(-shape.capacity // self.block_size))
        return super()._init_state(shape)

    def _attend_cache(
        self, query: Tensor, cache: KeyValueCache, before: KeyValueCache, bias: AnyBias | None
    ) -> Tensor:
        assert bias is None or adds_numbers(bias)
        if query.shape[2] != 1:
            return super()._attend_cache(query, cache, before, bias)
        plain = bias is None and not torch.compiler.is_compiling()
        if plain and cache.is_even and not cache.is_empty:
            attended = self._attended(query, cache.longest - 1)
            if attended.shape[-1] == cache.longest:
                return super()._attend_cache(query, cache, before, bias)
            return self._attend_slots(query, cache, attended)
        positions = before.positions(1)
        # Gather the blocks that the new token of each row attends to.
        heads, slots = query.shape[1], cache.keys.shape[2] - 1
        table = self.table(heads, -(-slots // self.block_size), causal=True, device=query.device)
        own = cache.inside(positions)[:, 0] // self.block_size
        attended = table[:, own].transpose(0, 1)  # batch, heads, slots
        at = self._tokens(attended).expand(-1, heads, -1)
        now = positions[:, :, None]
        row = torch.arange(len(query), device=query.device)[:, None, None]
        allowed = (at >= 0) & (at <= now)
        seen, head = at.clamp(0, slots), torch.arange(heads, device=query.device)[:, None, None]
        kv_head = head[..., 0] // (heads // cache.keys.shape[1])
        return masked(
            query,
            cache.keys[row, kv_head, seen].to(query.dtype),
            cache.values[row, kv_head, seen].to(query.dtype),
            allowed[:, :, None],
            _added(bias, head, now[..., None], at[:, :, None], query.dtype),
            scale=self.scale(query.shape[-1]),
        )

    def _attended(self, query: Queries, position: int) -> Int[Tensor, "1 heads keys"]:
        """Return the positions that a query at a position attends to."""
        own, options = position // self.block_size, self._table_options(query.shape[1], causal=True)
        before = torch.from_numpy(_tokens_before(options, own, self.block_size)).to(query.device)
        here = torch.arange(own * self.block_size, position + 1, device=query.device)
        return torch.cat([before, here.expand(len(before), -1)], 1)[None]

    def _sees(self, heads: int, positions: Tensor, slots: Tensor) -> Tensor:
        size, blocks = self.block_size, -(-len(slots) // self.block_size)
        table = self.table(heads, blocks, causal=True, device=slots.device)
        rows = (positions // size).clamp(max=blocks - 1)
        allowed = _as_matrix(table)[:, rows].transpose(0, 1)[..., slots // size]
        return allowed & super()._sees(heads, positions, slots)


class SlidingWindow(BlockSparse):
    """Softmax attention to the keys at most `size` positions away (Beltagy et al., 2020, 3.1).

    >>> x = torch.zeros(1, 1, 4, 8)  # equal tokens
    >>> SlidingWindow(size=1).weights(x, x, mask=Mask.causal())[0, 0]
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000, 0.0000],
            [0.0000, 0.0000, 0.5000, 0.5000]])
    """

    name = "sliding-window"

    def __init__(self, *, size: int, block_size: int = 64) -> None:
        """`size` positions to either side, or only back if attention is causal.

        Raises:
            ValueError: the size is negative.
        """
        if size < 0:
            raise ValueError(f"a window has size ≥ 0, not {size}")
        super().__init__(block_size=block_size, reach=size)
        self.size = size

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """Softmax over the keys at most `size` positions away."""
        position = torch.arange(query.shape[2])
        near = (position[:, None] - position).abs() <= self.size
        return reference.softmax(query, key, reference.allowed(query, key, mask) & near, bias)

    def restrict(self, mask: Mask | None, query: Queries) -> Mask:
        return _self_aligned(mask).within(self.size)  # its blocks hold the whole window

    def _attend_cache(
        self, query: Tensor, cache: KeyValueCache, before: KeyValueCache, bias: AnyBias | None
    ) -> Tensor:
        # A window's slots are adjacent: no blocks are gathered.
        return super()._attend_cache(query, replace(cache, window_size=self.size), before, bias)

    def _pairs(self, shape: Shape) -> float:
        if shape.mode == "step" and shape.queries == 1:
            return min(self.size + 1, shape.keys)
        return super()._pairs(shape)

    def table(
        self, heads: int, blocks: int, *, causal: bool, device: torch.device
    ) -> Int[Tensor, "1 blocks slots"]:
        side = min(-(-self.size // self.block_size), blocks)
        own = torch.arange(blocks, device=device)[:, None]
        table = own + torch.arange(-side, 1 if causal else side + 1, device=device)
        return table.masked_fill((table < 0) | (table >= blocks), -1)[None]


_SEGMENT = 256
"""Number of tokens whose blocks are gathered at once, to stay in a CPU's cache."""
_TABLES = 64
"""Number of tables that are kept: each layer of a model has its own."""


@assume_constant_result
def _drawn(
    heads: int, blocks: int, side: int, random: int, global_blocks: int, causal: bool, seed: int
) -> Tensor:
    """Call `_bigbird_table`, which the compiler doesn't trace."""
    return _bigbird_table(heads, blocks, side, random, global_blocks, causal, seed)


@lru_cache(maxsize=_TABLES)
def _bigbird_table(
    heads: int, blocks: int, side: int, random: int, global_blocks: int, causal: bool, seed: int
) -> Int[Tensor, "heads blocks slots"]:
    """Return the global, window and random blocks of each head and block of queries; −1: none."""
    head, row, column = np.ogrid[:heads, :blocks, :blocks]
    near = (column >= row - side) & (column <= (row if causal else row + side))
    fixed = (near | (column < global_blocks)) & ((column <= row) | (not causal))
    free = ~fixed & ((column < row) | (not causal))
    lot = np.where(free, _hash(seed, head, row, column) >> np.uint64(1), np.uint64(2**64 - 1))
    drawn = np.argsort(lot, axis=-1, kind="stable")[..., :random]
    drawn = np.where(np.take_along_axis(free, drawn, -1), drawn, -1)
    first = np.arange(min(global_blocks, blocks))
    window = np.arange(blocks)[:, None] + np.arange(-side, side + 1)
    certain = np.concatenate([np.tile(first, (blocks, 1)), window], 1)
    wrong = (certain < 0) | (certain >= blocks)
    wrong[:, len(first) :] |= window < global_blocks  # already listed as global
    if causal:
        wrong |= certain > np.arange(blocks)[:, None]
    certain = np.broadcast_to(np.where(wrong, -1, certain), (heads, *certain.shape))
    return as_static(torch.from_numpy(np.concatenate([certain, drawn], -1).astype(np.int64)))


@lru_cache(maxsize=_TABLES)
def _tokens_before(options: _TableOptions, own: int, size: int) -> NDArray[np.int64]:
    """Return the positions in earlier blocks that a block attends to, (heads, keys)."""
    blocks = _bigbird_table(*options)[:, own].numpy()
    # The heads' blocks differ, but not their number.
    blocks = blocks[:, (blocks[0] >= 0) & (blocks[0] != own), None]
    return (blocks * size + np.arange(size)).reshape(len(blocks), -1)


def _hash(seed: int, *parts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each combination of the parts (SplitMix64, Steele et al., 2014)."""
    state = np.zeros((1,) * parts[0].ndim, dtype=np.uint64)
    for part in (np.full_like(parts[0][:1, :1, :1], seed), *parts):
        state = (state ^ part.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


def _as_matrix(table: Int[Tensor, "#heads blocks slots"]) -> Bool[Tensor, "#heads blocks blocks"]:
    """Convert a table of block numbers to a matrix of pairs."""
    heads, blocks, _ = table.shape
    # One more column for −1.
    matrix = torch.zeros(heads, blocks, blocks + 1, dtype=torch.bool, device=table.device)
    return matrix.scatter(2, table % (blocks + 1), True)[:, :, :blocks]


def _gather_blocks(
    x: Float[Tensor, "batch kv_heads n d"],
    attended: Int[Tensor, "#heads blocks slots"],
    heads: int,
    size: int,
) -> Float[Tensor, "batch heads_times_blocks keys d"]:
    """Return the blocks that each block of queries attends to, concatenated."""
    (rows, kv_heads, n, d), slots = x.shape, attended.shape[2]
    blocks = n // size
    head = torch.arange(heads, device=x.device)[:, None, None] // (heads // kv_heads)
    index = head * blocks + attended.clamp(min=0)
    found = x.reshape(rows, kv_heads * blocks, size * d).index_select(1, index.flatten())
    return found.reshape(rows, heads * attended.shape[1], slots * size, d)


def _added(
    bias: Bias | None, head: Tensor, query: Tensor, key: Tensor, dtype: torch.dtype
) -> Tensor | None:
    """Return the bias at the given heads and positions, which broadcast."""
    if bias is None:
        return None
    nothing = torch.zeros((), device=query.device)
    return bias.score_mod()(nothing, head.new_zeros(()), head, query, key).to(dtype)


def _self_aligned(mask: Mask | None) -> Mask:
    """Return the mask aligned at the start, which is equivalent in self-attention."""
    mask = mask or Mask()
    return replace(mask, alignment="start") if mask.alignment == "end" else mask
