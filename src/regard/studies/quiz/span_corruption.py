"""Span corruption of characters: lengths, and the content of a row."""

import math
from typing import Annotated

import numpy as np
from msgspec import Meta

from regard.data import IGNORE
from regard.data.batch import RowFormat
from regard.data.causal import SpanCorruption
from regard.studies.figure import Line, chart, figure, histogram
from regard.studies.finding import at_least, at_most, equal, table
from regard.studies.study import EvidenceParts, Seed, study
from regard.text.config import CharactersConfig
from regard.text.tokenizer import Tokenizer, train_tokenizer

TEXT = "Khatchig Mouradian is a journalist, writer and translator, born in Lebanon."
SHORTEST = 4
"""Smallest length of a truncated text."""


@study()
def span_corruption(
    n: Annotated[int, Meta(ge=16, le=512)] = 128,
    draws: Annotated[int, Meta(ge=100, le=10_000)] = 4000,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which lengths and labels do examples of span corruption have?

    Texts are truncated to 4 to ⌊7n/8⌋ of n characters, and a quarter of this is moved on average;
    each text can be restored, and each label is the next input.

    $$ p \, s \, u \to p \; m \; u \; m \; s, \quad \mathrm{E}|s| = \lfloor L / 4 \rfloor, \quad L
    \sim U\{4, \dots, \lfloor 7n / 8 \rfloor\} $$

    Rows are drawn from one document and split at their masks. The length of the span is uniform
    between 1 and 2⌊L/4⌋ − 1. Prefix and suffix may be empty.

    Figure. Left: lengths of truncated texts, uniform between their bounds (dotted). Right: share of
    the text in the span, around a quarter (dotted).

    Args:
        n: number of characters of a row
        draws: number of rows
    """
    rng = np.random.default_rng(seed)
    tokenizer = train_tokenizer(CharactersConfig(), [TEXT])
    document = (tokenizer.encode(TEXT) * n)[:n]
    rows, shifted = zip(*(_row(document, n, tokenizer, rng) for _ in range(draws)), strict=True)
    texts = [[*prefix, *span, *suffix] for prefix, suffix, span in rows]
    lengths, spans = (np.array(list(map(len, each))) for each in (texts, [row[2] for row in rows]))
    longest = n * 7 // 8
    means = np.maximum(lengths // 4, 1)
    deviation = np.sqrt((means**2 - means) / 3)  # of a uniform length in 1..2m − 1
    yield at_least("shortest truncated text", lengths.min(), SHORTEST)
    yield at_most("longest truncated text", lengths.max(), longest)
    middle, within = (SHORTEST + longest) / 2, 4 * (longest - SHORTEST + 1) / math.sqrt(12 * draws)
    yield equal("mean length of truncated texts", lengths.mean(), middle, within)
    share, expected = (values.sum() / lengths.sum() for values in (spans, means))
    within = float(4 * np.linalg.norm(deviation) / lengths.sum())
    yield equal("mean share of the span", share, expected, within)
    restored = np.mean([text == document[: len(text)] for text in texts])
    yield equal("share of texts restored from their rows", restored, 1)
    yield equal("share of targets that are the next input", np.mean(shifted), 1)
    shown = [map(tokenizer.decode, (texts[i], *rows[i])) for i in range(3)]
    yield table(["text", "prefix", "suffix", "span"], shown)
    bounds = [Line(x=SHORTEST), Line(x=longest)]
    cut = histogram(lengths, np.linspace(SHORTEST, longest + 1, 15).tolist())
    moved = histogram(spans / lengths, np.linspace(0, 0.6, 16).tolist())
    yield figure(
        chart(cut, *bounds, title="truncated texts", x="characters", y="rows"),
        chart(moved, Line(x=0.25), title="spans", x="share of the truncated text"),
    )


def _row(
    document: list[int], n: int, tokenizer: Tokenizer, rng: np.random.Generator
) -> tuple[tuple[list[int], list[int], list[int]], bool]:
    """Draw a row; return its prefix, suffix and span, and whether each label is the next input."""
    mask = tokenizer.special.require("mask")
    data = SpanCorruption([document], RowFormat(n, tokenizer.special.padding), mask=mask)
    batch = data.collate([data.example(0, rng)])
    inputs = batch.inputs["input_ids"].ids[0].tolist()
    labels = [label for label in batch.labels[0].tolist() if label != IGNORE]
    row = [inputs[0], *labels]
    first, second = (i for i, token in enumerate(row) if token == mask)
    parts = row[:first], row[first + 1 : second], row[second + 1 :]
    return parts, inputs[: len(labels)] == row[:-1]
