"""Examples side by side in tensors, padded at their ends."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from jaxtyping import Int
from torch import Tensor

from regard.text.objectives import IGNORE, EncodedExample
from regard.text.vocabulary import PAD

Pair = tuple[Sequence[int], Sequence[int]]
"""The ids of a source and of its target."""


@dataclass(frozen=True, eq=False)
class Batch(ABC):
    """What a step of training reads, and what it is to predict; all tensors have a row each."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Tensor, ...]:
        """What the body of a model is called with."""

    @property
    @abstractmethod
    def n_targets(self) -> int:
        """Predictions that carry loss."""

    @property
    def positions(self) -> int:
        """Tokens that are read, padding included."""
        return sum(ids.numel() for ids in self.inputs if ids.ndim == 2)

    @abstractmethod
    def take(self, rows: Int[Tensor, " rows"]) -> Self:
        """Some rows, without needless padding."""

    @abstractmethod
    def lengths_to_sort_by(self) -> Int[Tensor, " rows"]:
        """How long each row is."""

    def split(self, parts: int) -> list[Self]:
        """The rows in `parts` batches of nearly equal size, by length, without needless padding."""
        if parts == 1:
            return [self]
        order = self.lengths_to_sort_by().argsort(stable=True)
        return [self.take(rows) for rows in order.tensor_split(parts) if len(rows)]

    def to(self, device: torch.device) -> Self:
        """The same batch on a device."""
        return type(self)(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True, eq=False)
class TextBatch(Batch):
    """Rows of ids and, for each position, the label to predict there from those before."""

    ids: Int[Tensor, "rows n"]
    labels: Int[Tensor, "rows n"]
    """The next token, or IGNORE."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return (self.ids,)

    @property
    def n_targets(self) -> int:
        return _targets(self.labels)

    def take(self, rows: Int[Tensor, " rows"]) -> "TextBatch":
        ids = cut(self.ids[rows])
        return TextBatch(ids, self.labels[rows, : ids.shape[1]])

    def lengths_to_sort_by(self) -> Int[Tensor, " rows"]:
        return row_lengths(self.ids)


@dataclass(frozen=True, eq=False)
class MaskedBatch(Batch):
    """Rows of ids that are read from both sides and, for some positions, the label to predict."""

    ids: Int[Tensor, "rows n"]
    lengths: Int[Tensor, " rows"]
    labels: Int[Tensor, "rows n"]
    """The token behind a mask, or IGNORE."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.ids, self.lengths

    @property
    def n_targets(self) -> int:
        return _targets(self.labels)

    def take(self, rows: Int[Tensor, " rows"]) -> "MaskedBatch":
        ids = cut(self.ids[rows])
        return MaskedBatch(ids, self.lengths[rows], self.labels[rows, : ids.shape[1]])

    def lengths_to_sort_by(self) -> Int[Tensor, " rows"]:
        return self.lengths


@dataclass(frozen=True, eq=False)
class MaskedPairBatch(MaskedBatch):
    """Masked rows of two sentences each."""

    segments: Int[Tensor, "rows n"]
    """0 for tokens of the first sentence, 1 for those of the second."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.ids, self.lengths, self.segments

    @property
    def positions(self) -> int:
        return self.ids.numel()

    def take(self, rows: Int[Tensor, " rows"]) -> "MaskedPairBatch":
        one = super().take(rows)
        segments = self.segments[rows, : one.ids.shape[1]]
        return MaskedPairBatch(one.ids, one.lengths, one.labels, segments)


@dataclass(frozen=True, eq=False)
class PairBatch(Batch):
    """Sources, and for each position of a target the label to predict there."""

    source: Int[Tensor, "rows m"]
    lengths: Int[Tensor, " rows"]
    """Of the sources."""
    ids: Int[Tensor, "rows n"]
    labels: Int[Tensor, "rows n"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.source, self.lengths, self.ids

    @property
    def n_targets(self) -> int:
        return _targets(self.labels)

    def take(self, rows: Int[Tensor, " rows"]) -> "PairBatch":
        ids = cut(self.ids[rows])
        labels = self.labels[rows, : ids.shape[1]]
        return PairBatch(cut(self.source[rows]), self.lengths[rows], ids, labels)

    def lengths_to_sort_by(self) -> Int[Tensor, " rows"]:
        return self.lengths


@dataclass(frozen=True, eq=False)
class LabelBatch(Batch):
    """Texts with a label each."""

    ids: Int[Tensor, "rows n"]
    lengths: Int[Tensor, " rows"]
    labels: Int[Tensor, " rows"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.ids, self.lengths

    @property
    def n_targets(self) -> int:
        return len(self.labels)

    def take(self, rows: Int[Tensor, " rows"]) -> "LabelBatch":
        return LabelBatch(cut(self.ids[rows]), self.lengths[rows], self.labels[rows])

    def lengths_to_sort_by(self) -> Int[Tensor, " rows"]:
        return self.lengths


@dataclass(frozen=True, eq=False)
class SegmentBatch(LabelBatch):
    """Pairs of texts with a label each, for a model that is told them apart."""

    segments: Int[Tensor, "rows n"]
    """Which of the two texts each id belongs to."""

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.ids, self.lengths, self.segments

    @property
    def positions(self) -> int:
        return self.ids.numel()

    def take(self, rows: Int[Tensor, " rows"]) -> "SegmentBatch":
        one = super().take(rows)
        segments = self.segments[rows, : one.ids.shape[1]]
        return SegmentBatch(one.ids, one.lengths, one.labels, segments)


@dataclass(frozen=True, eq=False)
class MatchBatch(Batch):
    """Questions, each with the document that answers it: the others' documents are wrong ones."""

    questions: Int[Tensor, "rows n"]
    question_lengths: Int[Tensor, " rows"]
    documents: Int[Tensor, "rows m"]
    document_lengths: Int[Tensor, " rows"]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.questions, self.question_lengths, self.documents, self.document_lengths

    @property
    def n_targets(self) -> int:
        return len(self.questions)

    def take(self, rows: Int[Tensor, " rows"]) -> "MatchBatch":
        return MatchBatch(
            cut(self.questions[rows]),
            self.question_lengths[rows],
            cut(self.documents[rows]),
            self.document_lengths[rows],
        )

    def lengths_to_sort_by(self) -> Int[Tensor, " rows"]:
        return self.document_lengths

    def split(self, parts: int) -> list["MatchBatch"]:
        """The whole batch: fewer rows would have fewer wrong documents."""
        return [self]


def pad_rows(
    rows: Sequence[Sequence[int]], value: int = PAD, *, limit: int = 0
) -> Int[Tensor, "rows n"]:
    """Rows of unequal length, filled up at their ends; the longest too, up to `limit` at most."""
    longest = max(len(row) for row in rows)
    n = max(longest, min(padded_size(longest), limit))
    filled = [[*row, *[value] * (n - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long)


def padded_size(n: int) -> int:
    """The next of few sizes: multiples of 4, of 8 beyond 64, of 16 beyond 128, and so on.

    For each shape of a matrix product, a CPU's libraries make code and keep it (some 0.7 MB where
    the hardware has bfloat16), and the C library keeps memory that fits no other shape.
    """
    multiple = max(4, 1 << (n - 1).bit_length() >> 4)
    return -(-n // multiple) * multiple


def lengths_of(rows: Sequence[Sequence[int]]) -> Int[Tensor, " rows"]:
    """How long each row is."""
    return torch.tensor([len(row) for row in rows])


def row_lengths(ids: Int[Tensor, "rows n"]) -> Int[Tensor, " rows"]:
    """How long each row is without the padding at its end."""
    count = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return torch.where(ids == PAD, 0, count).amax(1)


def cut(ids: Int[Tensor, "rows n"]) -> Int[Tensor, "rows shorter"]:
    """Without needless padding of all rows; at least one position stays."""
    return ids[:, : padded_size(max(int(row_lengths(ids).max()), 1))]


def make_batch(examples: Sequence[EncodedExample], block: int) -> TextBatch:
    """Pad and truncate examples to at most `block` positions."""
    ids = [example.ids[: block + 1] for example in examples]
    labels = [
        [token if target else IGNORE for token, target in zip(row, example.targets, strict=False)]
        for row, example in zip(ids, examples, strict=True)
    ]
    inputs, outputs = [row[:-1] for row in ids], [row[1:] for row in labels]
    return TextBatch(pad_rows(inputs, limit=block), pad_rows(outputs, IGNORE, limit=block))


def _targets(labels: Tensor) -> int:
    return int((labels != IGNORE).sum())
