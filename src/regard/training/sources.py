"""What each step of training sees: a pure function of seed and step, so that resuming is exact."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, TypeVar

import numpy as np

from regard.text.batches import Batch
from regard.text.objectives import (
    EncodedExample,
    continuation,
    hidden_tokens,
    masked_tokens,
    next_token,
    pieces,
    question_answer,
    span_corruption,
)
from regard.training.collate import (
    given_batch,
    label_batch,
    masked_batch,
    masked_pair_batch,
    match_batch,
    pair_batch,
    segment_batch,
    text_batch,
)

T = TypeVar("T")

MakeExample = Callable[[np.random.Generator], Any]
"""Makes an example; what is random in it comes from the generator."""

Collate = Callable[[Sequence[Any], int, Sequence[int]], Batch]
"""Examples, the model's context length, and what begins each text, to a batch."""

POOL = 16
"""Batches whose rows are drawn together and sorted by length, at most."""


@dataclass(frozen=True)
class Source:
    """Examples of one kind, and the share of batches that they fill."""

    examples: Sequence[MakeExample]
    share: float = 1.0
    batch: int | None = None
    """Examples of a step, where it isn't the stream's."""
    lengths: Sequence[int] | None = None
    """About how long each example is, where that differs: rows of a step are alike, to pad less."""
    collate: Collate = text_batch


def documents(ids: Sequence[Sequence[int]], block: int, share: float = 1.0) -> Source:
    """Each document, to be predicted token by token; a long one in pieces of a block."""
    examples = [next_token(piece, block) for document in ids for piece in pieces(document, block)]
    return _fixed(examples, share)


def windows(ids: Sequence[int], block: int, share: float = 1.0) -> Source:
    """A long text in windows of a block, cut anew each time."""
    starts = range(0, max(len(ids) - block, 1), block)
    return Source([partial(_window, ids, block, start) for start in starts], share)


def whole(ids: Sequence[Sequence[int]], block: int) -> Source:
    """Long texts in pieces of a block, each token once."""
    cut = [piece for text in ids for piece in pieces(text, block)]
    return _fixed([continuation(piece) for piece in cut])


def corrupted(ids: Sequence[Sequence[int]], block: int, share: float = 1.0) -> Source:
    """Each document with a span cut out, another one each time."""
    return Source([partial(span_corruption, document, block) for document in ids], share)


def questions(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    share: float = 1.0,
    batch: int | None = None,
) -> Source:
    """Questions, whose answers are to be predicted."""
    return _fixed([question_answer(*pair) for pair in pairs], share, batch)


def clozes(
    asked: Sequence[tuple[Sequence[Sequence[int]], Sequence[int]]],
    share: float = 1.0,
    batch: int | None = None,
) -> Source:
    """Clozes, each with its forms, of which one is drawn each time, and its answer."""
    forms = [[question_answer(form, answer) for form in forms] for forms, answer in asked]
    lengths = [sum(len(form.ids) for form in of_one) // len(of_one) for of_one in forms]
    return Source([partial(_one_of, of_one) for of_one in forms], share, batch, lengths)


def pairs(ids: Sequence[tuple[Sequence[int], Sequence[int]]], max_source_tokens: int) -> Source:
    """Sources with their targets, for a model that reads the one and writes the other."""
    lengths = [len(source) + len(target) for source, target in ids]
    collate = partial(pair_batch, max_source_tokens=max_source_tokens)
    return Source([partial(_always, pair) for pair in ids], 1.0, None, lengths, collate)


def labeled(ids: Sequence[tuple[Sequence[int], int]]) -> Source:
    """Texts with the number of their label."""
    lengths = [len(text) for text, _ in ids]
    return Source([partial(_always, row) for row in ids], 1.0, None, lengths, label_batch)


def segmented(ids: Sequence[tuple[Sequence[int], Sequence[int], int]]) -> Source:
    """Texts with the segment of each id and the number of their label."""
    lengths = [len(text) for text, _, _ in ids]
    return Source([partial(_always, row) for row in ids], 1.0, None, lengths, segment_batch)


def tagged(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Source:
    """Texts with the number of a tag at the last token of each word, and no label elsewhere."""
    lengths = [len(ids) for ids, _ in rows]
    return Source([partial(_always, row) for row in rows], 1.0, None, lengths, masked_batch)


def matches(ids: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Source:
    """Questions with the documents that answer them; any of them may stand side by side."""
    return Source([partial(_always, pair) for pair in ids], collate=match_batch)


def given(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Source:
    """Rows of ids that have a label at each position already."""
    return Source([partial(_always, row) for row in rows], collate=given_batch)


def masked(
    ids: Sequence[Sequence[int]], vocabulary: int, masking: float, share: float = 1.0
) -> Source:
    """Texts with a part of their tokens masked or replaced, others each time."""
    examples = [partial(_masked, text, vocabulary, masking) for text in ids]
    return Source(examples, share, None, [len(text) for text in ids], masked_batch)


def masked_pairs(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], vocabulary: int, masking: float
) -> Source:
    """Texts of two sentences, masked like others; with the ids, the sentence of each of them."""
    examples = [partial(_masked_pair, ids, parts, vocabulary, masking) for ids, parts in pairs]
    return Source(examples, 1.0, None, [len(ids) for ids, _ in pairs], masked_pair_batch)


def hidden(ids: Sequence[Sequence[int]], masking: float, share: float = 1.0) -> Source:
    """Texts with a part of their tokens hidden behind masks, others each time."""
    examples = [partial(_hidden, text, masking) for text in ids]
    return Source(examples, share, None, [len(text) for text in ids], masked_batch)


def _fixed(
    examples: Sequence[EncodedExample], share: float = 1.0, batch: int | None = None
) -> Source:
    """Examples in which nothing is random."""
    lengths = [len(example.ids) for example in examples]
    return Source([partial(_always, example) for example in examples], share, batch, lengths)


def _always(example: T, _: np.random.Generator) -> T:
    return example


def _masked(
    text: Sequence[int], vocabulary: int, masking: float, draw: np.random.Generator
) -> tuple[list[int], list[int]]:
    return masked_tokens(text, vocabulary, draw, masking)


def _masked_pair(
    ids: Sequence[int],
    parts: Sequence[int],
    vocabulary: int,
    masking: float,
    draw: np.random.Generator,
) -> tuple[tuple[list[int], list[int]], Sequence[int]]:
    return masked_tokens(ids, vocabulary, draw, masking), parts


def _hidden(
    text: Sequence[int], masking: float, draw: np.random.Generator
) -> tuple[list[int], list[int]]:
    return hidden_tokens(text, draw, masking)


def _one_of(examples: Sequence[EncodedExample], draw: np.random.Generator) -> EncodedExample:
    return examples[int(draw.integers(len(examples)))]


def _window(
    ids: Sequence[int], block: int, start: int, draw: np.random.Generator
) -> EncodedExample:
    """A window that begins in start..start+block-1."""
    last = max(min(start + block, len(ids) - block), start + 1)
    first = int(draw.integers(start, last))
    row = ids[first : first + block + 1]
    return continuation(row)


class Stream:
    """The batch of every step. Epochs of a source end with a batch that may be smaller."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        batch: int,
        block: int,
        seed: int,
        steps: int | None = None,
        epochs: int | None = None,
        shuffle: bool = True,
        prefix: Sequence[int] = (),
    ) -> None:
        """`epochs` counts passes over the source with the largest share.

        `prefix` begins each row, and is never predicted.
        """
        self._prefix = prefix
        self._sources = [source for source in sources if source.share > 0]
        self._batch, self._block, self._seed, self._shuffle = batch, block, seed, shuffle
        shares = np.array([source.share for source in self._sources])
        shares = shares / shares.sum()
        if steps is None:
            main = int(shares.argmax())
            steps = ceil((epochs or 1) * self._batches_an_epoch(main) / shares[main])
        self.steps = steps
        self._turns, self._counts = _interleave(shares, steps)
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    def batch(self, step: int) -> Batch:
        """The batch of a step in 0..steps-1."""
        turn = int(self._turns[step])
        epoch, part = divmod(int(self._counts[step]), self._batches_an_epoch(turn))
        batch = self._batch_of(turn)
        rows = self._order(turn, epoch)[part * batch : (part + 1) * batch]
        draw = np.random.default_rng([self._seed, 1, step])
        examples = self._sources[turn].examples
        made = [examples[row](draw) for row in rows]
        return self._sources[turn].collate(made, self._block, self._prefix)

    def positions_before(self, step: int) -> int:
        """Positions to predict in all rows before a step, padding included: block - 1 a row.

        A text of a block has so many; a row may have one more, where a token follows it.
        """
        rows = 0
        for source, batches in enumerate(np.bincount(self._turns[:step])):
            epochs, part = divmod(int(batches), self._batches_an_epoch(source))
            examples = len(self._sources[source].examples)
            rows += epochs * examples + part * self._batch_of(source)
        return rows * (self._block - 1)

    def _batches_an_epoch(self, source: int) -> int:
        return ceil(len(self._sources[source].examples) / self._batch_of(source))

    def _batch_of(self, source: int) -> int:
        return self._sources[source].batch or self._batch

    def _order(self, source: int, epoch: int) -> np.ndarray:
        """The order of a source's examples; that of its last epoch is kept."""
        if source not in self._orders or self._orders[source][0] != epoch:
            self._orders[source] = epoch, self._new_order(source, epoch)
        return self._orders[source][1]

    def _new_order(self, source: int, epoch: int) -> np.ndarray:
        made = self._sources[source]
        if not self._shuffle:
            return np.arange(len(made.examples))
        draw = np.random.default_rng([self._seed, 2, source, epoch])
        lengths = np.zeros(len(made.examples)) if made.lengths is None else np.array(made.lengths)
        return _shuffled(lengths, self._batch_of(source), draw)


def _shuffled(lengths: np.ndarray, batch: int, draw: np.random.Generator) -> np.ndarray:
    """An order of all examples in which those of a batch are of similar length.

    They are drawn into pools and sorted there. Of few examples there are four pools at least, or
    none is sorted: a batch is to hold others in each epoch. A smaller batch comes last.
    """
    n = len(lengths)
    order = draw.permutation(n)
    full = n - n % batch
    size = batch * min(POOL, max(n // (4 * batch), 1))
    for start in range(0, full, size):
        pool = order[start : min(start + size, full)]
        if size > batch:
            pool[:] = pool[np.argsort(lengths[pool], kind="stable")]
    batches = draw.permutation(order[:full].reshape(-1, batch))
    return np.concatenate([batches.ravel(), order[full:]])


def _interleave(shares: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Whose turn each step is, spread evenly, and how many turns that source had before.

    The source that is farthest behind its share goes next.
    """
    turns = np.empty(steps, dtype=np.int64)
    counts = np.empty(steps, dtype=np.int64)
    had = np.zeros(len(shares), dtype=np.int64)
    for step in range(steps):
        turn = int((shares * (step + 1) - had).argmax())
        turns[step], counts[step] = turn, had[turn]
        had[turn] += 1
    return turns, counts
