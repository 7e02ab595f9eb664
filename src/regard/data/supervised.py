"""Supervised learning: texts with labels, sources with targets, questions with documents."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.data import IGNORE
from regard.data.batch import Batch, Dataset, PaddedIds, RowFormat

Ids = Sequence[int]


class _Rows(Dataset):
    """Base of the datasets whose rows begin with ids."""

    def length(self, index: int) -> int:
        return len(self.rows[index][0])


class LabeledTokens(_Rows):
    """Texts with a label for each token, IGNORE where there is no loss."""

    def collate(self, examples: Sequence[tuple[Ids, Ids]]) -> Batch:
        ids, labels = zip(*examples, strict=True)
        inputs = {"input_ids": self.format.input_ids(ids)}
        return Batch(inputs, self.format.aligned(labels, IGNORE).ids)


class LabeledTexts(_Rows):
    """Texts with a label each: (ids, label), or (ids, token types, label)."""

    def collate(self, examples: Sequence[tuple[Any, ...]]) -> Batch:
        ids, *types, labels = zip(*examples, strict=True)
        inputs = {"input_ids": self.format.input_ids(ids)}
        if types:
            inputs["token_type_ids"] = self.format.aligned(types[0], 0)
        return Batch(inputs, torch.tensor(labels))


class SequencePairs(_Rows):
    """Sources with their targets, decoder start included, for an encoder–decoder."""

    def __init__(
        self,
        pairs: Sequence[tuple[Ids, Ids]],
        format: RowFormat,
        *,
        max_source_tokens: int,
    ) -> None:
        super().__init__(pairs, format)
        self._max_source_tokens = max_source_tokens

    def length(self, index: int) -> int:
        return sum(map(len, self.rows[index]))

    def collate(self, examples: Sequence[tuple[Ids, Ids]]) -> Batch:
        pad, limit = self.format.pad, self.format.context_length
        source = PaddedIds.of([s for s, _ in examples], pad, limit=self._max_source_tokens)
        target = PaddedIds.of([t[:-1] for _, t in examples], pad, limit=limit)
        labels = PaddedIds.of([t[1:] for _, t in examples], IGNORE, limit=limit)
        return Batch({"source": source, "input_ids": target}, labels.ids)


class ContrastivePairs(_Rows):
    """Questions, each with its document; the other documents of the batch are negatives."""

    def length(self, index: int) -> int:
        """Return a constant: negatives may have any length."""
        return 0

    def collate(self, examples: Sequence[tuple[Ids, Ids]]) -> Batch:
        questions, documents = zip(*examples, strict=True)
        inputs = {
            "questions": self.format.input_ids(questions),
            "documents": self.format.input_ids(documents),
        }
        return Batch(inputs, torch.arange(len(examples)), in_batch_negatives=True)
