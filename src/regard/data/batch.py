"""Batches: rows of ids, padded at their ends, with their lengths and labels.

The batch of each step is a pure function of seed and step, so that resuming is exact. Any number of
processes that share the seed see the same global batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int, Integer, Shaped
from torch import Tensor

from regard.config import MOST_STEPS
from regard.data import IGNORE
from regard.errors import UserError

Row: TypeAlias = Sequence[int] | Integer[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class PaddedIds:
    """Rows of ids of unequal length, padded at their ends."""

    ids: Int[Tensor, "rows n"]
    lengths: Int[Tensor, " rows"]
    pad: int

    @staticmethod
    def of(rows: Sequence[Row], pad: int, *, limit: int = 0) -> "PaddedIds":
        """Pad rows as `pad_rows` does."""
        return PaddedIds(pad_rows(rows, pad, limit=limit), lengths_of(rows), pad)

    def take(self, rows: Int[Tensor, " rows"]) -> "PaddedIds":
        """Select rows and trim their padding; at least one position stays."""
        lengths = self.lengths[rows]
        n = padded_size(max(int(lengths.max()), 1))
        return PaddedIds(self.ids[rows, :n], lengths, self.pad)

    def to(self, device: torch.device) -> "PaddedIds":
        """Move to a device."""
        return PaddedIds(move(self.ids, device), move(self.lengths, device), self.pad)

    def pin_memory(self) -> "PaddedIds":
        """Copy to page-locked memory, from which copies to a GPU are asynchronous."""
        return PaddedIds(self.ids.pin_memory(), self.lengths.pin_memory(), self.pad)


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and labels of a training step; all tensors have a row per example."""

    inputs: dict[str, PaddedIds]
    """By the names of the model's arguments; `split` sorts rows by the lengths of the first."""
    labels: Int[Tensor, " rows"] | Int[Tensor, "rows n"]
    """One per row, or one per position of `input_ids`; IGNORE where there is no loss."""
    in_batch_negatives: bool = False
    """Whether rows are each other's negatives, so that they can't be split."""
    rows: Int[Tensor, " rows"] | None = None
    """Index of each row in the batch of the step, if this is a part of it."""
    counted: int | None = None
    """Number of predictions with loss, if the labels are on a GPU, where counting synchronizes."""

    @property
    def row_numbers(self) -> Int[Tensor, " rows"]:
        """Index of each row in the batch of the step."""
        first = next(iter(self.inputs.values())).lengths
        return torch.arange(len(first)) if self.rows is None else self.rows

    @property
    def input_ids(self) -> Int[Tensor, "rows n"]:
        """Padded ids to which the labels belong."""
        return self.inputs["input_ids"].ids

    @property
    def n_targets(self) -> int:
        """Number of predictions with loss."""
        return int((self.labels != IGNORE).sum()) if self.counted is None else self.counted

    @property
    def positions(self) -> int:
        """Number of tokens that are read, padding included."""
        return sum(field.ids.numel() for field in self._read())

    @property
    def pairs(self) -> int:
        """Number of pairs of tokens of one row, padding included."""
        return sum(field.ids.numel() * field.ids.shape[1] for field in self._read())

    def _read(self) -> list[PaddedIds]:
        """The inputs that are tokens."""
        beside = {"token_type_ids", "document_ids"}
        return [field for name, field in self.inputs.items() if name not in beside]

    def take(self, rows: Int[Tensor, " rows"]) -> "Batch":
        """Select rows and trim their padding."""
        inputs = {name: field.take(rows) for name, field in self.inputs.items()}
        labels = torch.arange(len(rows)) if self.in_batch_negatives else self.labels[rows]
        if labels.ndim == 2:
            labels = labels[:, : inputs["input_ids"].ids.shape[1]]
        return Batch(inputs, labels, self.in_batch_negatives, self.row_numbers[rows])

    def every(self, first: int, step: int) -> "Batch":
        """Select every `step`-th row, with all labels; the last row is repeated to equal numbers.

        Padding is kept, so that the rows of all processes can be concatenated.
        """
        n = len(self.row_numbers)
        rows = torch.arange(first, first + -(-n // step) * step, step).clamp(max=n - 1)
        inputs = {
            name: PaddedIds(field.ids[rows], field.lengths[rows], field.pad)
            for name, field in self.inputs.items()
        }
        return Batch(inputs, self.labels, self.in_batch_negatives, self.row_numbers[rows])

    def without_loss(self) -> "Batch":
        """Return these rows without any target."""
        return replace(self, labels=torch.full_like(self.labels, IGNORE), counted=None)

    def split(self, parts: int) -> list["Batch"]:
        """Split the rows, by length, into `parts` batches of nearly equal size."""
        if parts == 1 or self.in_batch_negatives:
            return [self]
        order = next(iter(self.inputs.values())).lengths.argsort(stable=True)
        return [self.take(rows) for rows in order.tensor_split(parts) if len(rows)]

    def to(self, device: torch.device) -> "Batch":
        """Move to a device; copies of pinned memory to a GPU are asynchronous."""
        inputs = {name: field.to(device) for name, field in self.inputs.items()}
        counted = self.counted if device.type == "cpu" else self.n_targets
        return replace(self, inputs=inputs, labels=move(self.labels, device), counted=counted)

    def pin_memory(self) -> "Batch":
        """Copy to page-locked memory, from which copies to a GPU are asynchronous."""
        inputs = {name: field.pin_memory() for name, field in self.inputs.items()}
        return replace(self, inputs=inputs, labels=self.labels.pin_memory())


def move(tensor: Shaped[Tensor, "*dims"], device: torch.device) -> Shaped[Tensor, "*dims"]:
    """Move a tensor to a device; copies of pinned memory to a GPU are asynchronous."""
    return tensor.to(device, non_blocking=device.type == "cuda")


@dataclass(frozen=True)
class RowFormat:
    """Format of the rows of a model's input: prefix, text, suffix, padding."""

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
        """Pad one value per token; `fill` is the value of prefix, suffix and padding."""
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
        """Return the number of examples."""
        return len(self.rows)

    def length(self, index: int) -> int:
        """Return the approximate length of an example; batches group similar ones to pad less."""
        return len(self.rows[index])

    def lengths(self) -> Integer[np.ndarray, " rows"]:
        """Return the length of every example."""
        return np.array([self.length(index) for index in range(len(self))])

    def example(self, index: int, rng: np.random.Generator) -> Any:
        """Return an example; its random parts are drawn from `rng`."""
        return self.rows[index]

    def collate(self, examples: Sequence[Any]) -> Batch:
        """Make a batch of examples."""
        raise NotImplementedError


def pad_rows(rows: Sequence[Row], pad: int, *, limit: int = 0) -> Int[Tensor, "rows n"]:
    """Pad rows at their ends to `padded_size` of the longest, up to `limit`, or to the longest."""
    lengths = np.array([len(row) for row in rows])
    longest = int(lengths.max())
    n = max(longest, min(padded_size(longest), limit))
    padded = np.full((len(rows), n), pad, dtype=np.int64)
    padded[np.arange(n) < lengths[:, None]] = np.concatenate([np.asarray(r, int) for r in rows])
    return torch.from_numpy(padded)


def padded_size(n: int) -> int:
    """Return the next of few sizes: multiples of 4, of 8 beyond 64, of 16 beyond 128, and so on.

    For each shape of a matrix product, CPU libraries generate and cache code (about 0.7 MB with
    hardware bfloat16), and the C library keeps memory that fits no other shape.
    """
    multiple = max(4, 1 << (n - 1).bit_length() >> 4)
    return -(-n // multiple) * multiple


def lengths_of(rows: Sequence[Row]) -> Int[Tensor, " rows"]:
    """Return the length of each row."""
    return torch.tensor([len(row) for row in rows])


# The batch of a step

POOL = 16
"""Largest number of batches whose rows are drawn together and sorted by length."""


@dataclass(frozen=True)
class WeightedDataset:
    """A dataset, and the share of the batches that it fills."""

    dataset: Dataset
    share: float = 1.0
    batch_size: int | None = None
    """Examples per step. Default: the sampler's."""


class Sampler:
    """The batches of training. Epochs of a dataset end with a batch that may be smaller."""

    def __init__(
        self,
        datasets: Sequence[WeightedDataset],
        *,
        batch_size: int,
        seed: int,
        steps: int | None = None,
        epochs: int | None = None,
        shuffle: bool = True,
    ) -> None:
        """`epochs` counts passes over the dataset with the largest share."""
        self._datasets = [one.dataset for one in datasets]
        self._batch_sizes = [one.batch_size or batch_size for one in datasets]
        self._seed, self._shuffle = seed, shuffle
        shares = np.array([one.share for one in datasets])
        shares = shares / shares.sum()
        if steps is None:
            main = int(shares.argmax())
            steps = ceil((epochs or 1) * self._batches_per_epoch(main) / shares[main])
        if steps > MOST_STEPS:
            raise UserError(f"training: has {steps:,} steps; choose at most {MOST_STEPS:,}")
        self.steps = steps
        self._turns, self._counts = interleave(shares, steps)
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    def batch(self, step: int) -> Batch:
        """Return the batch of a step in 0..steps-1."""
        turn = int(self._turns[step])
        epoch, part = divmod(int(self._counts[step]), self._batches_per_epoch(turn))
        size, dataset = self._batch_sizes[turn], self._datasets[turn]
        rows = self._order(turn, epoch)[part * size : (part + 1) * size]
        rng = np.random.default_rng([self._seed, 1, step])
        return dataset.collate([dataset.example(int(row), rng) for row in rows])

    def rows_before(self, step: int) -> int:
        """Return the number of rows of all steps before `step`."""
        rows = 0
        for turn, batches in enumerate(np.bincount(self._turns[:step])):
            epochs, part = divmod(int(batches), self._batches_per_epoch(turn))
            rows += epochs * len(self._datasets[turn]) + part * self._batch_sizes[turn]
        return rows

    def _batches_per_epoch(self, turn: int) -> int:
        return ceil(len(self._datasets[turn]) / self._batch_sizes[turn])

    def _order(self, turn: int, epoch: int) -> np.ndarray:
        """Return the order of a dataset's examples; that of its last epoch is cached."""
        if turn not in self._orders or self._orders[turn][0] != epoch:
            self._orders[turn] = epoch, self._new_order(turn, epoch)
        return self._orders[turn][1]

    def _new_order(self, turn: int, epoch: int) -> np.ndarray:
        dataset = self._datasets[turn]
        if not self._shuffle:
            return np.arange(len(dataset))
        rng = np.random.default_rng([self._seed, 2, turn, epoch])
        return _shuffled(dataset.lengths(), self._batch_sizes[turn], rng)


def sequential_batches(dataset: Dataset, batch_size: int, *, seed: int = 0) -> Iterator[Batch]:
    """Yield all examples in their order, in batches; `seed` determines their random parts."""
    datasets = [WeightedDataset(dataset)]
    sampler = Sampler(datasets, batch_size=batch_size, seed=seed, epochs=1, shuffle=False)
    return (sampler.batch(step) for step in range(sampler.steps))


EVALUATED_TOKENS = 2**15
"""Tokens, padding included, that a model reads or generates together in an evaluation."""


def evaluation_batches(lengths: Sequence[int], rows: int) -> Iterator[slice]:
    """Yield all rows in their order, in slices of at most `rows` rows and EVALUATED_TOKENS.

    A slice has one row at least.
    """
    start, longest = 0, 0
    for place, length in enumerate(lengths):
        longest = max(longest, length)
        tokens = (place + 1 - start) * padded_size(longest)
        if place > start and (place - start == rows or tokens > EVALUATED_TOKENS):
            yield slice(start, place)
            start, longest = place, length
    if lengths:
        yield slice(start, len(lengths))


def _shuffled(lengths: np.ndarray, batch_size: int, rng: np.random.Generator) -> np.ndarray:
    """Return an order of all examples in which the examples of a batch have similar lengths.

    They are drawn into pools and sorted within them. There are at least four pools, or nothing is
    sorted: batches must differ between epochs. An incomplete batch comes last.
    """
    n = len(lengths)
    order = rng.permutation(n)
    full = n - n % batch_size
    size = batch_size * min(POOL, max(n // (4 * batch_size), 1))
    sorts = size > batch_size and bool((lengths != lengths[0]).any())
    for start in range(0, full if sorts else 0, size):
        pool = order[start : min(start + size, full)]
        pool[:] = pool[np.argsort(lengths[pool], kind="stable")]
    batches = rng.permutation(order[:full].reshape(-1, batch_size))
    return np.concatenate([batches.ravel(), order[full:]])


def interleave(shares: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the dataset of each step, spread evenly, and its number of earlier steps.

    The dataset that is farthest behind its share goes next.
    """
    if len(shares) == 1:
        return np.zeros(steps, dtype=np.int64), np.arange(steps)
    turns = np.empty(steps, dtype=np.int64)
    counts = np.empty(steps, dtype=np.int64)
    had = np.zeros(len(shares), dtype=np.int64)
    for step in range(steps):
        turn = int((shares * (step + 1) - had).argmax())
        turns[step], counts[step] = turn, had[turn]
        had[turn] += 1
    return turns, counts
