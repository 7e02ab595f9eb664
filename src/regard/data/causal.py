"""Causal language modeling: each target is predicted from the tokens before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from regard.data import IGNORE
from regard.data.batch import Batch, Dataset, PaddedIds, RowFormat

Ids = Sequence[int]


@dataclass(frozen=True)
class CausalExample:
    """Token ids, and whether each is a target."""

    ids: Sequence[int]
    targets: Sequence[bool]


class CausalDataset(Dataset):
    """Causal examples; a base of the datasets that make them."""

    def collate(self, examples: Sequence[CausalExample]) -> Batch:
        """Make a batch: the model reads ids[:-1] and predicts ids[1:]."""
        prefix, n = list(self.format.prefix), self.format.context_length
        ids = [[*prefix, *example.ids][: n + 1] for example in examples]
        targets = [[*[False] * len(prefix), *example.targets] for example in examples]
        labels = [labels_of(row, of_row)[1:] for row, of_row in zip(ids, targets, strict=True)]
        inputs = PaddedIds.of([row[:-1] for row in ids], self.format.pad, limit=n)
        return Batch({"input_ids": inputs}, PaddedIds.of(labels, IGNORE, limit=n).ids)


def labels_of(ids: Ids, targets: Sequence[bool]) -> Ids:
    """Return the ids that are targets, and IGNORE in place of the others."""
    if all(targets):
        return ids
    return [token if target else IGNORE for token, target in zip(ids, targets, strict=False)]


class Documents(CausalDataset):
    """Documents, in pieces that fit the context length; every token is predicted once.

    Each piece begins with the last token of the one before, which is no target again; `end` is
    appended as far as it fits. The first token of a document is predicted only after a prefix.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[int]],
        format: RowFormat,
        *,
        end: Sequence[int] = (),
    ) -> None:
        n = format.max_tokens
        pieces = [
            (start == 0, [*document[start : start + n + 1], *end][: n + 1])
            for document in documents
            for start in range(0, max(len(document) - 1, 1), n)
        ]
        super().__init__([ids for _, ids in pieces], format)
        self.begins = [begins for begins, _ in pieces]
        """Whether each piece begins a document."""

    def example(self, index: int, rng: np.random.Generator) -> CausalExample:
        ids = self.rows[index]
        return CausalExample(ids, [self.begins[index], *[True] * (len(ids) - 1)][: len(ids)])


class SpanCorruption(CausalDataset):
    """Documents with a span moved to the end: prefix, mask, suffix, mask, span; drawn each time."""

    def __init__(self, documents: Sequence[Sequence[int]], format: RowFormat, *, mask: int) -> None:
        super().__init__(documents, format)
        self._mask = mask

    def length(self, index: int) -> int:
        """Return a constant: the length of an example is drawn each time."""
        return self.format.context_length

    def example(self, index: int, rng: np.random.Generator) -> CausalExample:
        return corrupt_span(self.rows[index], self.format.max_tokens, rng, mask=self._mask)


class Questions(CausalDataset):
    """Prompts with their completions, which a causal model predicts; of one turn or several."""

    def __init__(self, conversations: Sequence[Sequence[Ids]], format: RowFormat) -> None:
        super().__init__([question_answer(*turns) for turns in conversations], format)

    def length(self, index: int) -> int:
        return len(self.rows[index].ids)


class Clozes(CausalDataset):
    """Clozes with their completions; one of a cloze's prompts is drawn each time."""

    def __init__(self, clozes: Sequence[tuple[Sequence[Ids], Ids]], format: RowFormat) -> None:
        examples = [
            [question_answer(prompt, completion) for prompt in prompts]
            for prompts, completion in clozes
        ]
        super().__init__(examples, format)

    def length(self, index: int) -> int:
        wordings = self.rows[index]
        return sum(len(wording.ids) for wording in wordings) // len(wordings)

    def example(self, index: int, rng: np.random.Generator) -> CausalExample:
        chosen: CausalExample = self.rows[index][int(rng.integers(len(self.rows[index])))]
        return chosen


def predict_all(ids: Sequence[int]) -> CausalExample:
    """Predict every token from those before."""
    return CausalExample(ids, [True] * len(ids))


def question_answer(*turns: Ids) -> CausalExample:
    """Predict completions, each from all that comes before; prompts and completions alternate."""
    targets = [i % 2 == 1 for i, part in enumerate(turns) for _ in part]
    return CausalExample(list(chain(*turns)), targets)


def corrupt_span(
    document: Sequence[int], max_tokens: int, rng: np.random.Generator, *, mask: int
) -> CausalExample:
    """Cut out a span, which follows at the end: prefix, `mask`, suffix, `mask`, span.

    The document is truncated to a length uniform in 4..⌊7/8·max_tokens⌋, the length of the span is
    uniform in 1..2m-1 with mean m = ¼ of that length (at least 1), its place is uniform. The
    objective of Stanford CS224N's assignment 5, after T5 (Raffel et al., 2020).
    """
    truncated = document[: int(rng.integers(4, max_tokens * 7 // 8 + 1))]
    mean = max(len(truncated) // 4, 1)
    length = min(int(rng.integers(1, 2 * mean)), len(truncated))
    start = int(rng.integers(0, len(truncated) - length + 1))
    end = start + length
    return predict_all([*truncated[:start], mask, *truncated[end:], mask, *truncated[start:end]])
