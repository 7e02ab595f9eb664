"""Datasets of packed corpora, with one or several documents per row, and mixtures of corpora."""

from collections.abc import Sequence
from copy import copy
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Int64, Integer

from regard.data import IGNORE, require_vocabulary
from regard.data.batch import Batch, Dataset, PaddedIds, RowFormat, interleave
from regard.errors import UserError

Indices: TypeAlias = Integer[np.ndarray, "*n"]

PADDING = -1
"""Document id of padding."""
PATTERN = 10_000
"""Rows after which the order of a mixture's sources repeats."""
MANY = 1000
"""Number of rows from which numpy finds the next ones faster than a loop."""
LONGEST = 10**8
"""Largest number of rows of a mixture, whose order takes 8 bytes per row."""


class Part(NamedTuple):
    """Tokens of a document that the model reads and predicts, and the labels of the predictions."""

    ids: Int64[np.ndarray, " n"]
    labels: Int64[np.ndarray, " n"]


class PackedDocuments(Dataset):
    """Documents of a packed corpus, in parts that fit the context length.

    Every token of a document but the first is predicted once, from those before it in its part; a
    part begins with the last token of the one before. With `packing`, a row holds as many whole
    parts, in the order of the corpus, as fit; otherwise one.
    """

    def __init__(
        self,
        ids: Integer[np.ndarray, " tokens"],
        starts: Integer[np.ndarray, " documents"],
        format: RowFormat,
        *,
        packing: bool,
        prefix: Sequence[int] = (),
        suffix: Sequence[int] = (),
        vocabulary: int,
        path: Path = Path(),
    ) -> None:
        """`ids` are those of all documents; `starts` are the places at which documents begin.

        `prefix` and `suffix` are put around each document; `vocabulary` is the number of ids, and
        `path` is the file, for messages.
        """
        self._ids, self._starts, self._packing = ids, starts, packing
        self._prefix, self._suffix = np.array(prefix, int), np.array(suffix, int)
        self._vocabulary, self._path = vocabulary, path
        n = format.context_length
        lengths = np.diff(starts, append=len(ids))
        inputs = np.maximum(lengths + len(self._prefix) + len(self._suffix) - 1, 0)
        inputs[lengths == 0] = 0
        counts = -(-inputs // n)
        self._first_part = np.cumsum(counts) - counts
        self._sizes = _part_sizes(inputs, counts, n)
        self._bounds = _fill_rows(self._sizes, n) if packing else np.arange(len(self._sizes) + 1)
        super().__init__(range(len(self._bounds) - 1), format)

    def length(self, index: int) -> int:
        row = self.rows[index]
        return self.format.context_length if self._packing else int(self._sizes[row])

    def lengths(self) -> Integer[np.ndarray, " rows"]:
        """Return the length of every example, of millions without a loop."""
        if self._packing:
            return np.full(len(self), self.format.context_length)
        lengths: Integer[np.ndarray, " rows"] = self._sizes[np.asarray(self.rows)]
        return lengths

    def example(self, index: int, rng: np.random.Generator) -> list[Part]:
        """The parts of a row.

        Raises:
            UserError: an id is beyond the vocabulary.
        """
        row = self.rows[index]
        return [self._part(part) for part in range(self._bounds[row], self._bounds[row + 1])]

    def collate(self, examples: Sequence[list[Part]]) -> Batch:
        """Make a batch; with packing, `document_ids` are the parts that tokens belong to."""
        n, pad = self.format.context_length, self.format.pad
        rows = [np.concatenate([part.ids for part in parts]) for parts in examples]
        labels = [np.concatenate([part.labels for part in parts]) for parts in examples]
        inputs = {"input_ids": PaddedIds.of(rows, pad, limit=n)}
        if self._packing:
            sizes = ([len(part.ids) for part in parts] for parts in examples)
            places = [np.repeat(np.arange(len(each)), each) for each in sizes]
            inputs["document_ids"] = PaddedIds.of(places, PADDING, limit=n)
        return Batch(inputs, PaddedIds.of(labels, IGNORE, limit=n).ids)

    def spread(self, tokens: int) -> "PackedDocuments":
        """Return evenly spaced rows with about `tokens` tokens, or all if there are fewer."""
        step = ceil(int(self._sizes.sum()) / tokens) or 1
        fewer = copy(self)
        fewer.rows = self.rows[::step]
        return fewer

    def _part(self, part: int) -> Part:
        document = int(np.searchsorted(self._first_part, part, side="right")) - 1
        first = (part - int(self._first_part[document])) * self.format.context_length
        row = self._read(document, first, first + int(self._sizes[part]) + 1)
        labels = row.copy()
        labels[: max(len(self._prefix) - first, 0)] = IGNORE  # a prefix is never predicted
        return Part(row[:-1], labels[1:])

    def _read(self, document: int, first: int, last: int) -> Int64[np.ndarray, " n"]:
        """Return ids first..last-1 of a document with its prefix and suffix."""
        start = int(self._starts[document])
        end = int(
            self._starts[document + 1] if document + 1 < len(self._starts) else len(self._ids)
        )
        before, size = len(self._prefix), end - start
        ids = self._ids[start + max(first - before, 0) : min(start + max(last - before, 0), end)]
        require_vocabulary(ids, self._vocabulary, self._path)
        behind = [max(place - before - size, 0) for place in (first, last)]
        return np.concatenate(
            [self._prefix[first:last], ids.astype(int), self._suffix[slice(*behind)]]
        )


def _part_sizes(
    inputs: Integer[np.ndarray, " documents"], counts: Integer[np.ndarray, " documents"], n: int
) -> Integer[np.ndarray, " parts"]:
    """Return the number of tokens that each part reads; all but the last of a document read n."""
    sizes = np.full(int(counts.sum()), n, dtype=np.int32)
    long = counts > 0
    sizes[np.cumsum(counts)[long] - 1] = (inputs - (counts - 1) * n)[long]
    return sizes


def _fill_rows(sizes: Integer[np.ndarray, " parts"], n: int) -> Integer[np.ndarray, " rows"]:
    """Return the first part of each row, and the number of parts.

    A row takes parts in their order until the next one doesn't fit (next-fit bin packing).
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    following = np.append(np.searchsorted(ends, ends - sizes + n, side="right"), len(sizes))
    begins = np.zeros(len(sizes) + 1, dtype=bool)
    # If two adjacent parts don't fit into one row, the second begins a row in any case.
    alone = following[:-2] == np.arange(1, len(sizes))
    found = np.append(0, 1 + np.flatnonzero(alone))
    while len(found) > MANY:
        begins[found] = True
        found = following[found]
        found = found[~begins[found]]
    has_begun, place_of = begins.data, following.data
    for part in found.tolist():
        while not has_begun[part]:
            has_begun[part] = True
            part = place_of[part]
    return np.flatnonzero(begins)


class Combined(Dataset):
    """Rows of several datasets of one kind, in an order that a subclass determines."""

    def __init__(self, datasets: Sequence[Dataset], rows: int) -> None:
        super().__init__(range(rows), datasets[0].format)
        self._datasets = datasets

    def length(self, index: int) -> int:
        dataset, row = self.source(index)
        return self._datasets[dataset].length(row)

    def lengths(self) -> Integer[np.ndarray, " rows"]:
        """Return the length of every example, of millions without a loop."""
        datasets, rows = self._places(np.arange(len(self)))
        lengths = np.empty_like(rows)
        for one, dataset in enumerate(self._datasets):
            chosen = datasets == one
            lengths[chosen] = dataset.lengths()[rows[chosen]]
        return lengths

    def example(self, index: int, rng: np.random.Generator) -> Any:
        dataset, row = self.source(index)
        return self._datasets[dataset].example(row, rng)

    def collate(self, examples: Sequence[Any]) -> Batch:
        """Make a batch as the datasets do."""
        return self._datasets[0].collate(examples)

    def source(self, index: int) -> tuple[int, int]:
        """Return the dataset of a row, and its row there."""
        dataset, row = self._places(np.array(index))
        return int(dataset), int(row)

    def _places(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the datasets of rows, and their rows there."""
        raise NotImplementedError


class Mixture(Combined):
    """Rows of several datasets, by weights.

    The source of row i is a function of i alone: every stretch of rows has its share of each
    source, whose rows are repeated in their order. The mixture is long enough for every row of
    every source to occur.
    """

    def __init__(self, datasets: Sequence[Dataset], weights: Sequence[float]) -> None:
        """`weights` are relative; the datasets are of one kind.

        Raises:
            UserError: a weight is too small for its source.
        """
        shares = np.array(weights) / sum(weights)
        self._sources, self._before = interleave(shares, PATTERN)
        self._counts = np.bincount(self._sources, minlength=len(datasets))
        self._rows = np.array([len(dataset) for dataset in datasets])
        rows = sum(map(len, datasets))
        patterns = [
            len(dataset) / count if count else np.inf
            for dataset, count in zip(datasets, self._counts, strict=True)
        ]
        longest = int(np.argmax(patterns))
        most = max(min(1000 * max(rows, PATTERN), LONGEST), 2 * rows)
        if patterns[longest] * PATTERN > most:
            raise UserError(
                f"--mix: the weight {weights[longest]:g} of corpus {longest + 1} is too small for "
                "its size; raise it"
            )
        ends = [self._end(dataset, int(n)) for dataset, n in enumerate(self._rows)]
        super().__init__(datasets, max(ceil(patterns[longest] * PATTERN), rows, *ends))

    def _end(self, dataset: int, n: int) -> int:
        """Return the number of rows with which n rows of a dataset have occurred."""
        places = np.flatnonzero(self._sources == dataset)
        patterns, more = divmod(n - 1, len(places))
        return patterns * len(self._sources) + int(places[more]) + 1

    def _places(self, indices: Indices) -> tuple[Indices, Indices]:
        pattern, place = np.divmod(indices, len(self._sources))
        dataset = self._sources[place]
        row = pattern * self._counts[dataset] + self._before[place]
        return dataset, row % self._rows[dataset]


class Joined(Combined):
    """Every row of several datasets of one kind once; those of each are spread evenly."""

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        sizes = [len(dataset) for dataset in datasets]
        super().__init__(datasets, sum(sizes))
        self._starts = np.cumsum([0, *sizes])
        places = np.concatenate([(np.arange(n) + 0.5) / n for n in sizes])
        self._order = np.argsort(places, kind="stable")

    def _places(self, indices: Indices) -> tuple[Indices, Indices]:
        rows = self._order[indices]
        dataset = np.searchsorted(self._starts, rows, side="right") - 1
        return dataset, rows - self._starts[dataset]
