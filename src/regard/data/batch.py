"""Batches: rows of ids, padded at their ends, with their lengths and labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data import IGNORE


@dataclass(frozen=True, eq=False)
class PaddedIds:
    """Rows of ids of unequal length, padded at their ends."""

    ids: Int[Tensor, "rows n"]
    lengths: Int[Tensor, " rows"]
    pad: int

    @staticmethod
    def of(rows: Sequence[Sequence[int]], pad: int, *, limit: int = 0) -> "PaddedIds":
        """Pad rows as `pad_rows` does."""
        return PaddedIds(pad_rows(rows, pad, limit=limit), lengths_of(rows), pad)

    def take(self, rows: Int[Tensor, " rows"]) -> "PaddedIds":
        """Select rows and trim their padding; at least one position stays."""
        lengths = self.lengths[rows]
        n = padded_size(max(int(lengths.max()), 1))
        return PaddedIds(self.ids[rows, :n], lengths, self.pad)

    def to(self, device: torch.device) -> "PaddedIds":
        """Move to a device."""
        return PaddedIds(self.ids.to(device), self.lengths.to(device), self.pad)


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and labels of a training step; all tensors have a row per example."""

    inputs: dict[str, PaddedIds]
    """By the names of the model's arguments; rows are sorted by the lengths of the first."""
    labels: Int[Tensor, " rows"] | Int[Tensor, "rows n"]
    """One per row, or one per position of `input_ids`; IGNORE where there is no loss."""
    in_batch_negatives: bool = False
    """Whether rows are each other's negatives, and so stay together."""

    @property
    def input_ids(self) -> Int[Tensor, "rows n"]:
        """The padded ids that the labels belong to."""
        return self.inputs["input_ids"].ids

    @property
    def n_targets(self) -> int:
        """Number of predictions that carry loss."""
        return int((self.labels != IGNORE).sum())

    @property
    def positions(self) -> int:
        """Number of tokens that are read, padding included."""
        read = (field for name, field in self.inputs.items() if name != "token_type_ids")
        return sum(field.ids.numel() for field in read)

    def take(self, rows: Int[Tensor, " rows"]) -> "Batch":
        """Select rows and trim their padding."""
        inputs = {name: field.take(rows) for name, field in self.inputs.items()}
        labels = torch.arange(len(rows)) if self.in_batch_negatives else self.labels[rows]
        if labels.ndim == 2:
            labels = labels[:, : inputs["input_ids"].ids.shape[1]]
        return Batch(inputs, labels, self.in_batch_negatives)

    def split(self, parts: int) -> list["Batch"]:
        """Split the rows, by length, into `parts` batches of nearly equal size."""
        if parts == 1 or self.in_batch_negatives:
            return [self]
        order = next(iter(self.inputs.values())).lengths.argsort(stable=True)
        return [self.take(rows) for rows in order.tensor_split(parts) if len(rows)]

    def to(self, device: torch.device) -> "Batch":
        """Move to a device."""
        inputs = {name: field.to(device) for name, field in self.inputs.items()}
        return Batch(inputs, self.labels.to(device), self.in_batch_negatives)


@dataclass(frozen=True)
class RowFormat:
    """How texts become rows of a model's input: prefix, text, suffix, padding."""

    context_length: int
    pad: int
    prefix: Sequence[int] = ()
    """Ids that begin each text and are never predicted."""
    suffix: Sequence[int] = ()
    """Ids that end each text that isn't continued; never predicted either."""

    @property
    def max_tokens(self) -> int:
        """The longest text that fits, in tokens, without prefix and suffix."""
        return self.context_length - len(self.prefix) - len(self.suffix)

    @property
    def whole_rows(self) -> "RowFormat":
        """The format of rows that have their prefix and suffix already."""
        return RowFormat(self.context_length, self.pad)

    def input_ids(self, rows: Sequence[Sequence[int]]) -> PaddedIds:
        """Put prefix and suffix around each text and pad."""
        return self._padded([[*self.prefix, *row, *self.suffix] for row in rows], self.pad)

    def aligned(self, rows: Sequence[Sequence[int]], fill: int) -> PaddedIds:
        """Pad values of each token; `fill` is that of prefix, suffix and padding."""
        before, behind = [fill] * len(self.prefix), [fill] * len(self.suffix)
        return self._padded([[*before, *row, *behind] for row in rows], fill)

    def _padded(self, rows: Sequence[Sequence[int]], pad: int) -> PaddedIds:
        n = self.context_length
        return PaddedIds.of([row[:n] for row in rows], pad, limit=n)


class Dataset:
    """The examples of one objective, each made of a row."""

    def __init__(self, rows: Sequence[Any], format: RowFormat) -> None:
        self.rows, self.format = rows, format

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.rows)

    def length(self, index: int) -> int:
        """About how long an example is; those of a batch are of similar length, to pad less."""
        return len(self.rows[index])

    def example(self, index: int, rng: np.random.Generator) -> Any:
        """Make an example; what is random in it is drawn from `rng`."""
        return self.rows[index]

    def collate(self, examples: Sequence[Any]) -> Batch:
        """Make a batch of examples."""
        raise NotImplementedError


def pad_rows(rows: Sequence[Sequence[int]], pad: int, *, limit: int = 0) -> Int[Tensor, "rows n"]:
    """Pad rows of unequal length at their ends; the longest too, up to `limit` at most."""
    longest = max(len(row) for row in rows)
    n = max(longest, min(padded_size(longest), limit))
    return torch.tensor([[*row, *[pad] * (n - len(row))] for row in rows], dtype=torch.long)


def padded_size(n: int) -> int:
    """Return the next of few sizes: multiples of 4, of 8 beyond 64, of 16 beyond 128, and so on.

    For each shape of a matrix product, a CPU's libraries make code and keep it (some 0.7 MB where
    the hardware has bfloat16), and the C library keeps memory that fits no other shape.
    """
    multiple = max(4, 1 << (n - 1).bit_length() >> 4)
    return -(-n // multiple) * multiple


def lengths_of(rows: Sequence[Sequence[int]]) -> Int[Tensor, " rows"]:
    """Return the length of each row."""
    return torch.tensor([len(row) for row in rows])
