"""Attention masks: one value for every restriction on attention."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from math import gcd
from operator import and_
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Alignment = Literal["start", "end"]
T = TypeVar("T")

BY_ROW = ("key_lengths", "document_ids", "allowed")
"""Fields of `Mask` that are tensors with a first axis of rows."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of keys that each block of queries may attend to."""

    size: int
    """Queries, and keys, in a block."""
    allowed: Bool[Tensor, "#heads query_blocks key_blocks"]

    def require_fit(self, queries: int, keys: int) -> None:
        """Raise unless the blocks cover these queries and keys.

        Raises:
            ValueError: names the sizes.
        """
        rows, columns = (self.size * n for n in self.allowed.shape[1:])
        if rows < queries or columns < keys:
            raise ValueError(
                f"a block mask for {rows} queries and {columns} keys doesn't fit "
                f"{queries} queries and {keys} keys"
            )

    def refined(self, size: int) -> Bool[Tensor, "#heads query_blocks key_blocks"]:
        """Return the same in smaller blocks, of a size that divides this one."""
        times = self.size // size
        return self.allowed.repeat_interleave(times, 1).repeat_interleave(times, 2)

    def __and__(self, other: "Blocks") -> "Blocks":
        size = gcd(self.size, other.size)
        first, second = self.refined(size), other.refined(size)
        rows, columns = (min(first.shape[i], second.shape[i]) for i in (1, 2))
        return Blocks(size, first[:, :rows, :columns] & second[:, :rows, :columns])


@dataclass(frozen=True, eq=False, kw_only=True)
class Mask:
    """A set of restrictions; a query may attend to the keys that all of them allow.

    Masks are made by the class methods below and combined by `&`, field by field: where causality
    places the queries at the "end", a window moves with them.

    >>> mask = Mask.causal() & Mask.lengths(torch.tensor([2]))
    >>> x = torch.zeros(1, 1, 3, 8)  # equal tokens, the last of which is padding
    >>> Softmax().weights(x, x, mask=mask)[0, 0]
    tensor([[1.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000],
            [0.5000, 0.5000, 0.0000]])
    """

    alignment: Alignment | None = None
    """Causal: query i is at key i ("start") or at key i + keys - queries ("end")."""
    window_size: int | None = None
    """Largest distance between a query and its keys, in positions to either side."""
    key_lengths: Int[Tensor, " batch"] | None = None
    """Number of keys of each row; the rest is padding."""
    document_ids: Int[Tensor, "batch keys"] | None = None
    """The document of each position; self-attention only."""
    blocks: Blocks | None = None
    """Blocks of keys that blocks of queries may attend to."""
    allowed: Bool[Tensor, "#batch #heads #queries #keys"] | None = None
    """Any further restriction, True where a query may attend to a key."""
    _cache: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)
    """Results of `cached`."""

    def __post_init__(self) -> None:
        """Add the axes that `allowed` lacks, as in torch's broadcasting."""
        if self.allowed is not None and self.allowed.ndim < 4:
            missing = (None,) * (4 - self.allowed.ndim)
            object.__setattr__(self, "allowed", self.allowed[missing])

    @staticmethod
    def causal(alignment: Alignment = "start") -> "Mask":
        """No later keys; `alignment` is the position of queries that are fewer than the keys."""
        return Mask(alignment=alignment)

    @staticmethod
    def window(size: int) -> "Mask":
        """At most `size` positions to either side."""
        if size < 0:
            raise ValueError(f"a window has size ≥ 0, not {size}")
        return Mask(window_size=size)

    @staticmethod
    def lengths(key_lengths: Int[Tensor, " batch"]) -> "Mask":
        """Only the first `key_lengths[row]` keys of each row."""
        return Mask(key_lengths=key_lengths)

    @staticmethod
    def documents(document_ids: Int[Tensor, "batch keys"]) -> "Mask":
        """Only keys of the query's own document, for several documents packed into one row."""
        return Mask(document_ids=document_ids)

    @staticmethod
    def positions(keep: Bool[Tensor, "batch keys"]) -> "Mask":
        """Only the keys that are True."""
        return Mask(allowed=keep[:, None, None, :])

    @staticmethod
    def block_pairs(
        allowed: Bool[Tensor, "#heads query_blocks key_blocks"], *, size: int
    ) -> "Mask":
        """Only the pairs of blocks, of `size` queries and as many keys, that are True."""
        if size < 1:
            raise ValueError(f"a block has size ≥ 1, not {size}")
        return Mask(blocks=Blocks(size, allowed))

    @staticmethod
    def dense(allowed: Bool[Tensor, "#batch #heads #queries #keys"]) -> "Mask":
        """Exactly the pairs that are True."""
        return Mask(allowed=allowed)

    def __and__(self, other: "Mask") -> "Mask":
        alignments = {a for a in (self.alignment, other.alignment) if a}
        if len(alignments) == 2:
            raise ValueError('one causal mask is aligned at the "start", the other at the "end"')
        if self.document_ids is not None and other.document_ids is not None:
            raise ValueError("only one of two combined masks may name documents")
        windows = [w for w in (self.window_size, other.window_size) if w is not None]
        return Mask(
            alignment=self.alignment or other.alignment,
            window_size=min(windows, default=None),
            key_lengths=_both(torch.minimum, self.key_lengths, other.key_lengths),
            document_ids=self.document_ids if other.document_ids is None else other.document_ids,
            blocks=_both(and_, self.blocks, other.blocks),
            allowed=_both(torch.logical_and, self.allowed, other.allowed),
        )

    @property
    def restrictions(self) -> frozenset[str]:
        """The names of the fields that are set."""
        given = (f.name for f in fields(self) if f.init)
        return frozenset(name for name in given if getattr(self, name) is not None)

    def cached(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` returns, computed once for all layers that share this mask.

        Compiled code repeats it, and the compiler removes the repetitions.
        """
        if torch.compiler.is_compiling():
            return make()
        # Tensors made in inference mode can't be saved for gradients outside of it.
        key = key, torch.is_inference_mode_enabled()
        if key not in self._cache:
            self._cache[key] = make()
        found: T = self._cache[key]
        return found

    def repeat_heads(self, times: int) -> "Mask":
        """Return the mask with the restrictions of each head repeated for consecutive heads."""
        if self.blocks is None and self.allowed is None:
            return self
        return self.cached(("repeated", times), lambda: self._repeated(times))

    def _repeated(self, times: int) -> "Mask":
        blocks, allowed = self.blocks, self.allowed
        if blocks is not None and len(blocks.allowed) > 1:
            blocks = Blocks(blocks.size, blocks.allowed.repeat_interleave(times, 0))
        if allowed is not None and allowed.shape[1] > 1:
            allowed = allowed.repeat_interleave(times, 1)
        return replace(self, blocks=blocks, allowed=allowed)

    def within(self, window_size: int) -> "Mask":
        """Return the mask with a window; all layers with this window share the result."""
        return self.cached(("window", window_size), lambda: self & Mask.window(window_size))

    def to(self, device: torch.device) -> "Mask":
        """Return the mask on a device."""
        blocks = self.blocks and Blocks(self.blocks.size, self.blocks.allowed.to(device))
        return replace(self._each(lambda x: x.to(device)), blocks=blocks)

    def rows(self, rows: slice | Int[Tensor, " rows"]) -> "Mask":
        """Return the mask of some rows of the batch."""
        return self._each(lambda x: x if len(x) == 1 else x[rows])

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Mask":
        """Return the mask with each tensor of rows changed."""
        by_row = {name: getattr(self, name) for name in BY_ROW}
        changed: dict[str, Any] = {k: change(x) for k, x in by_row.items() if x is not None}
        return replace(self, **changed)

    def shift(self, queries: int, keys: int) -> int:
        """Return the position of the first query among the keys."""
        return keys - queries if self.alignment == "end" else 0

    def query_positions(
        self, queries: int, keys: int, device: torch.device
    ) -> Int[Tensor, " queries"]:
        """Return the positions of the queries among the keys."""
        shift = self.shift(queries, keys)
        return torch.arange(shift, shift + queries, device=device)

    def require_fit(self, rows: int, queries: int, keys: int) -> None:
        """Raise unless the mask is for as many rows, or one for all, and documents fit the tokens.

        Raises:
            ValueError: names the sizes.
        """
        for name in BY_ROW:
            tensor = getattr(self, name)
            if tensor is not None and len(tensor) not in (1, rows):
                raise ValueError(
                    f"{name} of {len(tensor)} rows don't fit {rows} rows of queries and keys"
                )
        self._require_documents(queries, keys)

    def require_pairs(self, heads: int, queries: int, keys: int) -> None:
        """Raise unless blocks and `allowed` are for these heads, or one for all, and these tokens.

        Raises:
            ValueError: names the sizes.
        """
        if self.blocks is not None:
            self.blocks.require_fit(queries, keys)
            if (own := len(self.blocks.allowed)) not in (1, heads):
                raise ValueError(f"a block mask for {own} heads doesn't fit {heads} heads")
        if self.allowed is None:
            return
        pairs = zip(self.allowed.shape[1:], (heads, queries, keys), strict=False)
        if self.allowed.ndim != 4 or any(own not in (1, n) for own, n in pairs):
            raise ValueError(
                f"a dense mask of shape {tuple(self.allowed.shape)} doesn't fit {heads} heads, "
                f"{queries} queries and {keys} keys"
            )

    def _require_documents(self, queries: int, keys: int) -> None:
        ids = self.document_ids
        if ids is not None and not ids.shape[1] == queries == keys:
            raise ValueError(
                f"document ids of {ids.shape[1]} positions don't fit {queries} queries and "
                f"{keys} keys; they are for self-attention"
            )

    def require_contiguous(self, name: str) -> None:
        """Raise unless documents are contiguous in their rows; compiled code can't check this.

        Raises:
            ValueError: names the mechanism and the row.
        """
        if self.document_ids is None or torch.compiler.is_compiling():
            return
        row = self.cached("scattered row", self._scattered_row)
        if row is not None:
            raise ValueError(
                f"row {row} has a document in two places; {name} attention needs contiguous "
                "documents; sort the tokens of each row by document"
            )

    def _scattered_row(self) -> int | None:
        """Return the first row with a document in several places."""
        assert self.document_ids is not None
        ordered = self.document_ids.sort(1).values
        changes, kinds = ((x[:, 1:] != x[:, :-1]).sum(1) for x in (self.document_ids, ordered))
        scattered = (changes > kinds).tolist()
        return scattered.index(True) if any(scattered) else None

    def padding(self, keys: int, device: torch.device) -> Bool[Tensor, "batch keys"]:
        """Return which keys are beyond the length of their row. All layers share the tensor."""
        lengths = self.key_lengths
        assert lengths is not None
        key = "padding", keys, device
        return self.cached(key, lambda: torch.arange(keys, device=device) >= lengths[:, None])

    def to_dense(
        self, queries: int, keys: int, device: torch.device
    ) -> Bool[Tensor, "#batch #heads #queries #keys"]:
        """Return the mask as a tensor that broadcasts, True where a query may attend to a key.

        Do not modify it: all layers share it.
        """
        self._require_documents(queries, keys)
        key = "dense", queries, keys, device
        return self.cached(key, lambda: self._to_dense(queries, keys, device))

    def _to_dense(self, queries: int, keys: int, device: torch.device) -> Tensor:
        rows = [len(x) for x in (self.key_lengths, self.document_ids) if x is not None]
        # Torch doesn't compile `max` of sizes with a default.
        row = torch.arange(max(rows) if rows else 1, device=device)[:, None, None, None]
        query = self.query_positions(queries, keys, device)[:, None]
        key = torch.arange(keys, device=device)[None, None, None]
        parts = [self.between(row, query, key)]
        if self.blocks is not None:
            self.blocks.require_fit(queries, keys)
            parts.append(self.blocks.refined(1)[None, :, :queries, :keys])
        if self.allowed is not None:
            parts.append(self.allowed)
        return reduce(and_, parts)

    def between(
        self, row: Int[Tensor, "*#n"], query: Int[Tensor, "*#n"], key: Int[Tensor, "*#n"]
    ) -> Bool[Tensor, "*#n"]:
        """Return the mask without its blocks and `allowed`, for rows and positions that broadcast.

        Negative keys are hidden. Positions beyond the sequence have the document of its last
        token: callers must hide them.
        """
        parts = [key >= 0]
        if self.alignment:
            parts.append(key <= query)
        if self.window_size is not None:
            parts.append((query - key).abs() <= self.window_size)
        if (lengths := self.key_lengths) is not None:
            parts.append(key < lengths[row % max(len(lengths), 1)])
        if (ids := self.document_ids) is not None:
            row, last = row % max(len(ids), 1), ids.shape[1] - 1
            parts.append(ids[row, query.clamp(0, last)] == ids[row, key.clamp(0, last)])
        return reduce(and_, parts)


def _both(combine: Callable[[T, T], T], first: T | None, second: T | None) -> T | None:
    """Combine two optional values; if one is missing, return the other."""
    if first is None or second is None:
        return second if first is None else first
    return combine(first, second)


def first_tokens(document_ids: Int[Tensor, "b n"]) -> Bool[Tensor, "b n"]:
    """Return whether each token is the first of its document."""
    changes = document_ids[:, 1:] != document_ids[:, :-1]
    return torch.cat([torch.ones_like(document_ids[:, :1], dtype=torch.bool), changes], 1)


def document_starts(document_ids: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """Return the place of the first token of each token's document."""
    places = torch.arange(document_ids.shape[1], device=document_ids.device)
    return torch.where(first_tokens(document_ids), places, 0).cummax(1).values
