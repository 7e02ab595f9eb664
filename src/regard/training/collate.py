"""Examples of each kind, side by side in a batch.

Each takes the examples, the model's context length, and the ids that begin each text.
"""

from collections.abc import Sequence

import torch

from regard.text.batches import (
    LabelBatch,
    MaskedBatch,
    MaskedPairBatch,
    MatchBatch,
    PairBatch,
    SegmentBatch,
    TextBatch,
    lengths_of,
    make_batch,
    pad_rows,
)
from regard.text.objectives import IGNORE, EncodedExample, begin
from regard.text.vocabulary import MASK

Ids = Sequence[int]


def text_batch(examples: Sequence[EncodedExample], block: int, prefix: Ids) -> TextBatch:
    """Texts to be predicted token by token."""
    return make_batch([begin(prefix, example) for example in examples], block)


def given_batch(rows: Sequence[tuple[Ids, Ids]], _block: int, _prefix: Ids) -> TextBatch:
    """Rows that have a label at each position; nothing begins them."""
    return TextBatch(
        pad_rows([ids for ids, _ in rows]), pad_rows([labels for _, labels in rows], IGNORE)
    )


def masked_batch(rows: Sequence[tuple[Ids, Ids]], block: int, prefix: Ids) -> MaskedBatch:
    """Texts with masks in them, and what is behind the masks."""
    ids = [[*prefix, *row][:block] for row, _ in rows]
    labels = [[*[IGNORE] * len(prefix), *row][:block] for _, row in rows]
    return MaskedBatch(
        pad_rows(ids, limit=block), lengths_of(ids), pad_rows(labels, IGNORE, limit=block)
    )


def masked_pair_batch(
    rows: Sequence[tuple[tuple[Ids, Ids], Ids]], block: int, prefix: Ids
) -> MaskedPairBatch:
    """The same with the sentence of each token; what begins a row belongs to the first."""
    masked = masked_batch([row for row, _ in rows], block, prefix)
    segments = [[*[0] * len(prefix), *parts][:block] for _, parts in rows]
    padded = pad_rows(segments, 0, limit=block)
    return MaskedPairBatch(masked.ids, masked.lengths, masked.labels, padded)


def pair_batch(
    pairs: Sequence[tuple[Ids, Ids]], block: int, _prefix: Ids, *, max_source_tokens: int
) -> PairBatch:
    """Sources, and targets that ⁇ begins and ends."""
    sources = [source for source, _ in pairs]
    return PairBatch(
        pad_rows(sources, limit=max_source_tokens),
        lengths_of(sources),
        pad_rows([[MASK, *target] for _, target in pairs], limit=block),
        pad_rows([[*target, MASK] for _, target in pairs], IGNORE, limit=block),
    )


def label_batch(rows: Sequence[tuple[Ids, int]], block: int, prefix: Ids) -> LabelBatch:
    """Texts with the number of their label."""
    ids = [[*prefix, *text] for text, _ in rows]
    labels = torch.tensor([label for _, label in rows])
    return LabelBatch(pad_rows(ids, limit=block), lengths_of(ids), labels)


def segment_batch(rows: Sequence[tuple[Ids, Ids, int]], block: int, prefix: Ids) -> SegmentBatch:
    """Texts with the segment of each id and the number of their label."""
    ids = [[*prefix, *text] for text, _, _ in rows]
    segments = [[*[0] * len(prefix), *parts] for _, parts, _ in rows]
    labels = torch.tensor([label for _, _, label in rows])
    padded = pad_rows(segments, 0, limit=block)
    return SegmentBatch(pad_rows(ids, limit=block), lengths_of(ids), labels, padded)


def match_batch(pairs: Sequence[tuple[Ids, Ids]], block: int, prefix: Ids) -> MatchBatch:
    """Questions with the documents that answer them."""
    questions = [[*prefix, *question] for question, _ in pairs]
    documents = [[*prefix, *document] for _, document in pairs]
    return MatchBatch(
        pad_rows(questions, limit=block),
        lengths_of(questions),
        pad_rows(documents, limit=block),
        lengths_of(documents),
    )
