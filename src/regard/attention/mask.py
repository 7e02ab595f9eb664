"""Who may look at whom: one value for every restriction on attention."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Alignment = Literal["start", "end"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Mask:
    """A set of restrictions; a query may look at a key that all of them allow.

    Masks are made by the class methods below and combined by `&`, field by field: where causality
    places the queries at the "end", a window moves with them.
    """

    alignment: Alignment | None = None
    """Causal: query i stands at key i ("start") or at key i + keys - queries ("end")."""
    window_size: int | None = None
    """The farthest key that a query may look at, in positions to either side."""
    key_lengths: Int[Tensor, " batch"] | None = None
    """How many keys of each row are real; the rest is padding."""
    document_ids: Int[Tensor, "batch keys"] | None = None
    """Which document each position belongs to; self-attention only."""
    allowed: Bool[Tensor, "#batch #heads #queries #keys"] | None = None
    """Any further restriction, True where a query may look."""

    @staticmethod
    def causal(alignment: Alignment = "start") -> "Mask":
        """No look ahead; `alignment` says where queries stand that are fewer than the keys."""
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
            allowed=_both(torch.logical_and, self.allowed, other.allowed),
        )

    @property
    def restrictions(self) -> frozenset[str]:
        """The names of the fields that restrict anything."""
        return frozenset(f.name for f in fields(self) if getattr(self, f.name) is not None)

    def to_dense(
        self, queries: int, keys: int, device: torch.device
    ) -> Bool[Tensor, "#batch #heads queries keys"]:
        """The mask as a tensor, True where a query may look at a key."""
        shift = keys - queries if self.alignment == "end" else 0
        query = torch.arange(queries, device=device)[:, None] + shift
        key = torch.arange(keys, device=device)[None, :]
        dense = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=device)
        if self.alignment:
            dense = dense & (key <= query)
        if self.window_size is not None:
            dense = dense & ((query - key).abs() <= self.window_size)
        if self.key_lengths is not None:
            dense = dense & (key < self.key_lengths[:, None, None, None])
        if self.document_ids is not None:
            ids = self.document_ids
            if not ids.shape[1] == queries == keys:
                raise ValueError(
                    f"document ids of {ids.shape[1]} positions don't fit {queries} queries and "
                    f"{keys} keys; they are for self-attention"
                )
            dense = dense & (ids[:, None, :, None] == ids[:, None, None, :])
        if self.allowed is not None:
            dense = dense & self.allowed
        return dense


def _both(
    combine: Callable[[Tensor, Tensor], Tensor], first: Tensor | None, second: Tensor | None
) -> Tensor | None:
    """Combine two optional tensors; one that is missing leaves the other as it is."""
    if first is None or second is None:
        return second if first is None else first
    return combine(first, second)
