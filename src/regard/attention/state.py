"""Decoding states: a cache of keys and values, an encoded source, and their base."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.mask import Mask


class State(Protocol):
    """Decoding state of a mechanism: tensors of fixed shape, and numbers.

    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> attention, cpu = Softmax(), torch.device("cpu")
    >>> state = attention.init_state(1, 2, 8, 8, capacity=9, device=cpu, dtype=query.dtype)
    >>> out, state = attention.extend(query, key, value, state)
    >>> state.length
    tensor([5])
    """

    @property
    def length(self) -> Int[Tensor, " batch"]:
        """Number of tokens so far, per row."""

    @property
    def bytes(self) -> int:
        """Size of all tensors."""

    def reorder(self, rows: Int[Tensor, " rows"]) -> "State":
        """Return the state of the given rows, in that order; a row may occur several times.

        The old state is invalid afterwards.
        """


@dataclass(frozen=True, eq=False)
class RowState:
    """Base of states whose fields are tensors by row, masks, other states, sequences, or numbers.

    Masks and numbers count 0 bytes; numbers are shared by all rows.
    """

    @property
    def bytes(self) -> int:
        """Size of all tensors."""
        return _bytes(list(vars(self).values()))

    def reorder(self, rows: Int[Tensor, " rows"]) -> Self:
        """Return the state of the given rows, in that order; a row may occur several times."""
        return replace(self, **{name: _select(x, rows) for name, x in vars(self).items()})

    def _replace(self, **changes: Any) -> Self:
        """Return the result of `dataclasses.replace` in less than half the time."""
        state = object.__new__(type(self))
        vars(state).update(vars(self), **changes)
        return state


def _bytes(x: Any) -> int:
    if isinstance(x, Sequence):
        return sum(map(_bytes, x))
    size: int = x.nbytes if isinstance(x, Tensor) else getattr(x, "bytes", 0)
    return size


def _select(x: Any, rows: Int[Tensor, " rows"]) -> Any:
    if isinstance(x, Sequence):
        return [_select(one, rows) for one in x]
    if x is None or isinstance(x, int | float):
        return x
    if isinstance(x, Tensor):
        return x[rows]
    return x.rows(rows) if isinstance(x, Mask) else x.reorder(rows)


def last_real(
    x: Float[Tensor, "batch new *d"], attention_mask: Bool[Tensor, "batch new"] | None
) -> Float[Tensor, "batch 1 *d"]:
    """Return the vectors of each row's last real token."""
    if attention_mask is None:
        return x[:, -1:]
    rows = torch.arange(len(x), device=x.device)
    return x[rows, attention_mask.sum(1) - 1].unsqueeze(1)


def last_by_head(
    x: Float[Tensor, "batch heads new *d"], attention_mask: Bool[Tensor, "batch new"] | None
) -> Float[Tensor, "batch heads 1 *d"]:
    """Return the vectors of each row's last real token, for each head."""
    return last_real(x.transpose(1, 2), attention_mask).transpose(1, 2)


@dataclass(frozen=True)
class StateShape:
    """The sizes of a decoding state."""

    batch: int
    kv_heads: int
    d: int
    """Width of a query and of a key."""
    e: int
    """Width of a value."""
    capacity: int
    """Largest number of tokens."""
    device: torch.device
    dtype: torch.dtype
    window_size: int | None = None
    """Largest distance between a query and its keys, in positions; see `Mask`."""


@dataclass(frozen=True, eq=False)
class KeyValueCache(RowState):
    """Keys and values of all tokens. The last slot is for padding, to which no token attends."""

    keys: Float[Tensor, "batch kv_heads slots d"]
    values: Float[Tensor, "batch kv_heads slots e"]
    behind: Int[Tensor, " batch"]
    """Tokens by which each row is shorter than `longest`; constant while all rows grow."""
    shortest: int
    longest: int
    """Smallest and largest length; in compiled code, which doesn't read tensors, bounds of them."""
    window_size: int | None = None
    """Largest distance between a query and its keys, in positions."""
    beams: int = 1
    """Number of consecutive rows that continue one prompt."""
    shared: int = 0
    """Number of slots, from the first, that are equal in all beams of a prompt."""

    @staticmethod
    def empty(shape: StateShape) -> "KeyValueCache":
        """Allocate slots for as many tokens as the shape's capacity."""
        rows, slots = (shape.batch, shape.kv_heads), shape.capacity + 1
        keys = torch.zeros(*rows, slots, shape.d, device=shape.device, dtype=shape.dtype)
        values = torch.zeros(*rows, slots, shape.e, device=shape.device, dtype=shape.dtype)
        behind = torch.zeros(shape.batch, dtype=torch.long, device=shape.device)
        return KeyValueCache(
            keys, values, behind, shortest=0, longest=0, window_size=shape.window_size
        )

    @property
    def length(self) -> Int[Tensor, " batch"]:
        """Number of tokens so far, per row."""
        return self.longest - self.behind

    def reorder(self, rows: Int[Tensor, " rows"]) -> Self:
        state = replace(self, behind=self.behind[rows])
        if not self.is_even:
            state = state._tightened()
        if len(rows) != len(self.behind):
            keys, values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
            beams, rest = divmod(len(rows), len(self.behind))
            every = torch.arange(len(self.behind), device=rows.device)
            together = not rest and torch.equal(rows, every.repeat_interleave(beams))
            beams, shared = (beams, self.shortest) if together and beams else (1, 0)
            return replace(state, keys=keys, values=values, beams=beams, shared=shared)
        return state._moved(rows)

    def _moved(self, rows: Int[Tensor, " batch"]) -> Self:
        """Reorder rows in place; rows that keep their place aren't copied."""
        place = torch.arange(len(rows), device=rows.device)
        moved = (rows != place).nonzero().squeeze(1)
        state = self
        if self.shared and not torch.equal(rows // self.beams, place // self.beams):
            state = replace(self, beams=1, shared=0)
        used = min(self.longest, self.keys.size(2) - 1)
        for stored in (self.keys, self.values):
            own = stored[:, :, state.shared : used]
            own.index_copy_(0, moved, own.index_select(0, rows[moved]))
        return state

    def append(
        self,
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        attention_mask: Bool[Tensor, "batch new"] | None,
    ) -> "KeyValueCache":
        """Write new tokens into the free slots, and padding into the last slot.

        If cached values have width 0, `value` is not read.
        """
        new = key.size(2)
        grown = self._replace(shortest=self.shortest + new, longest=self.longest + new)
        if attention_mask is not None:
            behind = self.behind + (new - attention_mask.sum(1))
            grown = grown._replace(shortest=self.shortest, behind=behind)._tightened()
        bin_slot = self.keys.size(2) - 1
        if not torch.compiler.is_compiling() and grown.longest > bin_slot:
            raise ValueError(
                f"the cache holds {bin_slot} tokens, not {grown.longest}; make it larger"
            )
        if attention_mask is None and self.shortest == self.longest:
            self.keys.narrow(2, self.longest, new).copy_(key)
            if self.values.size(3):
                self.values.narrow(2, self.longest, new).copy_(value)
        else:
            self._scatter(key, value, attention_mask)
        return grown

    def _scatter(self, key: Tensor, value: Tensor, attention_mask: Tensor | None) -> None:
        """Write new tokens into the next slots of each row."""
        slot = self.positions(key.shape[2])
        if attention_mask is not None:
            slot = torch.where(attention_mask, slot, self.keys.shape[2] - 1)
        row = torch.arange(len(key), device=key.device)[:, None]
        self.keys[row, :, slot] = key.transpose(1, 2).to(self.keys.dtype)
        if self.values.shape[3]:
            self.values[row, :, slot] = value.transpose(1, 2).to(self.values.dtype)

    def _tightened(self) -> Self:
        """Return the state with the exact smallest and largest length, instead of bounds."""
        if torch.compiler.is_compiling() or not len(self.behind):
            return self
        least, most = torch.stack(torch.aminmax(self.behind)).tolist()
        behind, longest = self.behind - least, self.longest - least
        return replace(self, behind=behind, shortest=self.longest - most, longest=longest)

    def positions(self, new: int) -> Int[Tensor, "batch new"]:
        """Return the positions of the next `new` tokens."""
        return self.length[:, None] + torch.arange(new, device=self.length.device)

    @property
    def is_empty(self) -> bool:
        """Whether no row has a token."""
        return self.longest == 0

    @property
    def is_even(self) -> bool:
        """Whether all rows are known to have equally many tokens."""
        return self.shortest == self.longest

    def inside(self, positions: Int[Tensor, "batch new"]) -> Int[Tensor, "batch new"]:
        """Return positions for a bias: those of padding are clamped to the last slot."""
        return positions.clamp(max=self.keys.shape[2] - 2)

    def filled(self) -> tuple[Tensor, Tensor]:
        """Return keys and values without the slots that no row has filled."""
        used = min(self.longest, self.keys.size(2) - 1)
        return self.keys.narrow(2, 0, used), self.values.narrow(2, 0, used)


@dataclass(frozen=True, eq=False)
class CachedState(RowState):
    """Keys and values of all tokens; subclasses add fields."""

    cache: KeyValueCache

    @property
    def length(self) -> Tensor:
        """Number of tokens so far, per row."""
        return self.cache.length


@dataclass(frozen=True, eq=False)
class Memory(RowState):
    """Keys and values of encoded sources, and the number of consecutive rows that read each."""

    key: Float[Tensor, "sources kv_heads keys d"]
    value: Float[Tensor, "sources kv_heads keys e"]
    length: Int[Tensor, " sources"]
    mask: Mask | None
    """Hides the padding; None without padding."""
    readers: int = 1

    @staticmethod
    def of(key: Tensor, value: Tensor, mask: Mask) -> "Memory":
        """Return the memory of sequences with the mask's lengths. On a CPU, its mask is dense."""
        assert mask.key_lengths is not None
        hidden: Mask | None = mask
        if key.device.type == "cpu" and not torch.compiler.is_compiling():
            keys = key.shape[2]
            hidden = mask.cached(("shown", keys), lambda: _shown(mask, keys))
        return Memory(key, value, mask.key_lengths, hidden)

    def reorder(self, rows: Int[Tensor, " rows"]) -> Self:
        """Return the memory of the given rows; beams of a source share it, without copies."""
        sources, (readers, rest) = rows // self.readers, divmod(len(rows), len(self.length))
        every = torch.arange(len(self.length), device=rows.device)
        if not rest and readers and torch.equal(sources, every.repeat_interleave(readers)):
            return replace(self, readers=readers)
        key, value, length = self.key[sources], self.value[sources], self.length[sources]
        mask = self.mask and self.mask.rows(sources)
        return replace(self, key=key, value=value, length=length, mask=mask, readers=1)


def _shown(mask: Mask, keys: int) -> Mask | None:
    """Return the mask of the positions within the lengths, or None if these are all."""
    hidden = mask.padding(keys, torch.device("cpu"))
    return Mask.positions(~hidden) if hidden.any() else None
