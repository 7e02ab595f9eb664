"""Keys and values kept for later queries: of the tokens seen, and of another sequence."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.base import RowState, StateShape


@dataclass(frozen=True, eq=False)
class KeyValueCache(RowState):
    """All keys and values seen. The last slot is a bin for padding and never looked at."""

    keys: Float[Tensor, "batch kv_heads slots d"]
    values: Float[Tensor, "batch kv_heads slots e"]
    length: Int[Tensor, " batch"]
    shortest: int
    longest: int
    """Of the lengths; bounds of them in compiled code, which can't ask."""
    window_size: int | None = None
    """Farthest token that a query attends to, in positions."""

    @staticmethod
    def empty(shape: StateShape) -> "KeyValueCache":
        """Allocate slots for as many tokens as the shape's capacity."""
        rows, slots = (shape.batch, shape.kv_heads), shape.capacity + 1
        keys = torch.zeros(*rows, slots, shape.d, device=shape.device, dtype=shape.dtype)
        values = torch.zeros(*rows, slots, shape.e, device=shape.device, dtype=shape.dtype)
        return replace(KeyValueCache.of(keys, values, 0), window_size=shape.window_size)

    @staticmethod
    def of(keys: Tensor, values: Tensor, length: int) -> "KeyValueCache":
        """Keys and values of which all rows have filled so many slots."""
        lengths = torch.full((len(keys),), length, device=keys.device)
        return KeyValueCache(keys, values, lengths, length, length)

    def reorder(self, rows: Int[Tensor, " rows"]) -> Self:
        length = self.length[rows]
        shortest, longest = (self.shortest, self.longest) if self.is_even else self._span(length)
        state = replace(self, length=length, shortest=shortest, longest=longest)
        if len(rows) != len(self.length):
            keys, values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
            return replace(state, keys=keys, values=values)
        self._move(rows)
        return state

    def _move(self, rows: Int[Tensor, " batch"]) -> None:
        """Put other rows in the places of those that are to change: what stays isn't copied."""
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().squeeze(1)
        for filled in self.filled():
            filled.index_copy_(0, moved, filled.index_select(0, rows[moved]))

    def append(
        self,
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        attention_mask: Bool[Tensor, "batch new"] | None,
    ) -> "KeyValueCache":
        """Write new tokens into the free slots; those not kept go to the bin."""
        new, bin_slot = key.shape[2], self.keys.shape[2] - 1
        if attention_mask is None:
            length, span = self.length + new, (self.shortest + new, self.longest + new)
        else:
            length = self.length + attention_mask.sum(1)
            span = self._span(length, new)
        if not torch.compiler.is_compiling() and span[1] > bin_slot:
            raise ValueError(f"the cache holds {bin_slot} tokens, not {span[1]}; make it larger")
        if attention_mask is None and self.is_even:
            slots = slice(self.longest, self.longest + new)
            self.keys[:, :, slots], self.values[:, :, slots] = key, value
        else:
            self._scatter(key, value, attention_mask)
        shortest, longest = span
        return replace(self, length=length, shortest=shortest, longest=longest)

    def _scatter(self, key: Tensor, value: Tensor, attention_mask: Tensor | None) -> None:
        """Write new tokens where each row has its own next slots."""
        slot = self.positions(key.shape[2])
        if attention_mask is not None:
            slot = torch.where(attention_mask, slot, self.keys.shape[2] - 1)
        row = torch.arange(len(key), device=key.device)[:, None]
        self.keys[row, :, slot] = key.transpose(1, 2).to(self.keys.dtype)
        self.values[row, :, slot] = value.transpose(1, 2).to(self.values.dtype)

    def _span(self, length: Tensor, new: int = 0) -> tuple[int, int]:
        """The least and the most of new lengths."""
        if torch.compiler.is_compiling():
            return self.shortest, self.longest + new
        least, most = torch.aminmax(length)
        return int(least), int(most)

    def positions(self, new: int) -> Int[Tensor, "batch new"]:
        """Positions of the next tokens."""
        return self.length[:, None] + torch.arange(new, device=self.length.device)

    @property
    def is_empty(self) -> bool:
        """Whether no row has seen a token."""
        return self.longest == 0

    @property
    def is_even(self) -> bool:
        """Whether all rows have seen equally many tokens, as far as that is known."""
        return self.shortest == self.longest

    def inside(self, positions: Int[Tensor, "batch new"]) -> Int[Tensor, "batch new"]:
        """Positions for a bias: those of padding, which may lie beyond the last slot, at it."""
        return positions.clamp(max=self.keys.shape[2] - 2)

    def filled(self) -> tuple[Tensor, Tensor]:
        """Keys and values without the slots that no row has filled."""
        used = min(self.longest, self.keys.shape[2] - 1)
        return self.keys[:, :, :used], self.values[:, :, :used]


@dataclass(frozen=True, eq=False)
class Memory(RowState):
    """Other sequences, whole, with their lengths, and how many rows in a row read each of them."""

    key: Float[Tensor, "sources kv_heads keys d"]
    value: Float[Tensor, "sources kv_heads keys e"]
    length: Int[Tensor, " sources"]
    readers: int = 1

    def reorder(self, rows: Int[Tensor, " rows"]) -> Self:
        """The beams of a source read it side by side, so that nothing is copied as they move."""
        sources, (readers, rest) = rows // self.readers, divmod(len(rows), len(self.length))
        every = torch.arange(len(self.length), device=rows.device)
        if not rest and readers and torch.equal(sources, every.repeat_interleave(readers)):
            return replace(self, readers=readers)
        key, value, length = self.key[sources], self.value[sources], self.length[sources]
        return replace(self, key=key, value=value, length=length, readers=1)
