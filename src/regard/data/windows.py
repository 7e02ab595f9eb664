"""Windows of a long text: the documents of a token store as one stream of ids."""

from collections.abc import Sequence
from copy import copy

import numpy as np
from jaxtyping import Int64, Integer

from regard.data import IGNORE
from regard.data.batch import Batch, Dataset, PaddedIds, RowFormat

VALIDATION_TOKENS = 2**17
"""Largest number of held-out tokens that are evaluated, in evenly spaced windows."""


class TokenStream:
    """The ids of documents, joined by a separator; ids are copied only when they are read.

    Document k begins at starts[k] + k · len(separator) of the stream.
    """

    def __init__(
        self,
        ids: Integer[np.ndarray, " tokens"],
        starts: Integer[np.ndarray, " documents"],
        separator: Sequence[int] = (),
    ) -> None:
        """`ids` are those of all documents, possibly memory-mapped; `starts` are their places."""
        self._ids, self._starts = ids, starts
        self._separator = np.array(separator, dtype=np.int64)
        self._begins = starts + len(separator) * np.arange(len(starts))
        self._first = 0
        self._last = len(ids) + len(separator) * max(len(starts) - 1, 0)

    def __len__(self) -> int:
        """Number of ids, separators included."""
        return self._last - self._first

    def split(self, place: int) -> tuple["TokenStream", "TokenStream"]:
        """Return the ids before a place, and those from it on; nothing is copied."""
        before, behind = copy(self), copy(self)
        before._last = behind._first = self._first + place
        return before, behind

    def read(self, first: int, last: int) -> Int64[np.ndarray, " read"]:
        """Return the ids first..last-1, up to the end of the stream."""
        first, last = self._first + first, min(self._first + last, self._last)
        document = int(np.searchsorted(self._begins, first, side="right")) - 1
        parts = []
        while first < last:
            begin, start = int(self._begins[document]), int(self._starts[document])
            following = document + 1
            is_last = following == len(self._starts)
            end = len(self._ids) if is_last else int(self._starts[following])
            parts.append(self._ids[start + first - begin : min(end, start + last - begin)])
            behind = begin + end - start  # the place of the separator
            parts.append(self._separator[max(first - behind, 0) : max(last - behind, 0)])
            first = behind + len(self._separator)
            document = following
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


class Windows(Dataset):
    """Windows of the context length, whose start is drawn each time."""

    def __init__(self, stream: TokenStream, format: RowFormat) -> None:
        n = format.context_length
        super().__init__(range(0, max(len(stream) - n, 1), n), format)
        self._stream = stream

    def length(self, index: int) -> int:
        return self.format.context_length

    def example(self, index: int, rng: np.random.Generator) -> Int64[np.ndarray, " n+1"]:
        """Return the ids of a window that begins in start..start + n - 1, and the next id."""
        start, n = self.rows[index], self.format.context_length
        last = max(min(start + n, len(self._stream) - n), start + 1)
        first = int(rng.integers(start, last))
        return self._stream.read(first, first + n + 1)

    def collate(self, examples: Sequence[Int64[np.ndarray, " n+1"]]) -> Batch:
        """Make a batch: every id but the first of a window is predicted from those before it."""
        n = self.format.context_length
        inputs = PaddedIds.of([ids[:-1] for ids in examples], self.format.pad, limit=n)
        labels = PaddedIds.of([ids[1:] for ids in examples], IGNORE, limit=n)
        return Batch({"input_ids": inputs}, labels.ids)


class HeldOutWindows(Windows):
    """Adjacent windows of held-out tokens; of a long text, evenly spaced ones."""

    def __init__(self, stream: TokenStream, format: RowFormat) -> None:
        super().__init__(stream, format)
        n = format.context_length
        starts = range(0, max(len(stream) - 1, 0), n)
        self.rows = starts[:: -(-len(starts) * n // VALIDATION_TOKENS) or 1]

    def length(self, index: int) -> int:
        start: int = self.rows[index]
        return min(self.format.context_length + 1, len(self._stream) - start)

    def example(self, index: int, rng: np.random.Generator) -> Int64[np.ndarray, " n+1"]:
        """Return the ids of a window and the next id."""
        start = self.rows[index]
        return self._stream.read(start, start + self.format.context_length + 1)
