"""Causal examples: what is read, what is predicted, and how often."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import assert_rows
from scipy.stats import chisquare

from regard.data import IGNORE
from regard.data.batch import RowFormat
from regard.data.causal import (
    CausalDataset,
    CausalExample,
    Documents,
    SpanCorruption,
    corrupt_span,
)

PAD, MASK = 0, 1
tokens = st.lists(st.integers(MASK + 1, 50), max_size=60)
texts = st.lists(st.integers(MASK + 1, 50), min_size=1, max_size=10)
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)
UNLIKELY = 1e-3
"""A fixed seed decides each draw: a test that passes once passes always."""


def take_apart(example: CausalExample) -> tuple[list[int], list[int], list[int]]:
    """prefix, suffix and span of a corrupted document."""
    parts: list[list[int]] = [[]]
    for token in example.ids:
        if token == MASK:
            parts.append([])
        else:
            parts[-1].append(token)
    prefix, suffix, span = parts
    return prefix, suffix, span


def corrupt_often(length: int, block: int, times: int) -> list[tuple[int, int, int]]:
    """Lengths of prefix, suffix and span in many corruptions of one document."""
    draw = np.random.default_rng(0)
    document = list(range(MASK + 1, MASK + 1 + length))
    parts = (take_apart(corrupt_span(document, block, draw, mask=MASK)) for _ in range(times))
    return [(len(prefix), len(suffix), len(span)) for prefix, suffix, span in parts]


@given(tokens, st.integers(8, 64), generators)
def test_corrupted_parts_make_up_the_beginning_of_the_document(
    document: list[int], block: int, draw: np.random.Generator
) -> None:
    example = corrupt_span(document, block, draw, mask=MASK)
    prefix, suffix, span = take_apart(example)
    whole = prefix + span + suffix
    assert whole == document[: len(whole)]
    assert len(span) >= min(1, len(document))
    assert min(4, len(document)) <= len(whole) <= block * 7 // 8
    assert len(example.ids) <= block + 1
    assert all(example.targets)
    assert len(example.targets) == len(example.ids)


def test_documents_shorter_than_any_truncation_are_kept_whole() -> None:
    for length in range(4):
        for prefix, suffix, span in corrupt_often(length, 128, 50):
            assert prefix + suffix + span == length
            assert span == min(length, 1)


@pytest.mark.parametrize("block", [8, 64, 128])
def test_truncation_is_uniform_from_4_to_seven_eighths_of_the_block(block: int) -> None:
    lengths = [sum(parts) for parts in corrupt_often(200, block, 20_000)]
    longest = block * 7 // 8
    assert (min(lengths), max(lengths)) == (4, longest)
    counts = np.bincount(lengths, minlength=longest + 1)[4:]
    assert chisquare(counts).pvalue > UNLIKELY


def test_a_span_is_a_quarter_of_the_truncated_text_on_average() -> None:
    drawn = corrupt_often(200, 128, 20_000)
    quarters = sum(sum(parts) // 4 for parts in drawn)
    assert sum(span for _, _, span in drawn) / quarters == pytest.approx(1, abs=0.01)


def test_lengths_and_places_of_spans_are_uniform() -> None:
    whole = [parts for parts in corrupt_often(16, 128, 20_000) if sum(parts) == 16]
    counts = np.bincount([span for _, _, span in whole])
    assert counts[0] == 0
    assert len(counts) == 8  # 1..7, whose mean is 4
    assert chisquare(counts[1:]).pvalue > UNLIKELY
    starts = [prefix for prefix, _, span in whole if span == 5]
    counts = np.bincount(starts, minlength=12)
    assert len(counts) == 12
    assert chisquare(counts).pvalue > UNLIKELY


def examples_of(dataset: Documents | SpanCorruption, seed: int = 0) -> list[CausalExample]:
    rng = np.random.default_rng(seed)
    return [dataset.example(index, rng) for index in range(len(dataset))]


@given(tokens, st.integers(8, 64), st.integers(0, 1000))
def test_a_document_is_corrupted_by_what_the_generator_draws(
    document: list[int], block: int, seed: int
) -> None:
    dataset = SpanCorruption([document], RowFormat(block + 1, PAD, [MASK]), mask=MASK)
    rng = np.random.default_rng(seed)
    assert examples_of(dataset, seed) == [corrupt_span(document, block, rng, mask=MASK)]


@given(tokens, st.integers(1, 64))
def test_a_document_is_predicted_to_its_end(document: list[int], block: int) -> None:
    first = examples_of(Documents([document], RowFormat(block, PAD), end=[MASK]))[0]
    assert list(first.ids) == [*document, MASK][: block + 1]
    assert list(first.targets) == [True] * len(first.ids)


@given(
    st.lists(st.integers(), min_size=2, max_size=60),
    st.integers(1, 20),
    st.sampled_from([(), (MASK,)]),
)
def test_pieces_predict_every_token_but_the_first_once(
    document: list[int], block: int, end: tuple[int, ...]
) -> None:
    dataset = Documents([document], RowFormat(block, PAD), end=end)
    cut = [list(example.ids) for example in examples_of(dataset)]
    assert [dataset.length(i) for i in range(len(dataset))] == list(map(len, cut))
    fitting = end if (len(document) - 1) % block else ()
    assert [token for piece in cut for token in piece[1:]] == [*document[1:], *fitting]
    assert cut[0][0] == document[0]
    for before, after in pairwise(cut):
        assert after[0] == before[-1]
        assert len(before) == block + 1
    assert 2 <= len(cut[-1]) <= block + 1


def test_every_token_is_predicted_once_after_a_prefix() -> None:
    dataset = Documents([list(range(10))], RowFormat(4, PAD, prefix=(99,)))
    labels = [dataset.collate([example]).labels.flatten() for example in examples_of(dataset)]
    assert [i for row in labels for i in row.tolist() if i != IGNORE] == list(range(10))


def test_a_document_too_short_to_cut_is_one_piece() -> None:
    document: list[int]
    for document in ([], [5]):
        (piece,) = examples_of(Documents([document], RowFormat(4, PAD)))
        assert list(piece.ids) == document


@given(tokens, tokens)
def test_what_begins_a_text_is_not_predicted(prefix: list[int], document: list[int]) -> None:
    format = RowFormat(8 + len(prefix), PAD, prefix)
    dataset = Documents([document], format, end=[MASK])
    batch = dataset.collate([examples_of(dataset)[0]])
    whole = [*prefix, *[*document, MASK][:9]]
    targets = [*[IGNORE] * len(prefix), *whole[len(prefix) :]]
    assert batch.input_ids[0, : len(whole) - 1].tolist() == whole[:-1]
    assert batch.labels[0, : len(whole) - 1].tolist() == targets[1:]


texts = st.lists(st.integers(MASK + 1, 50), min_size=1, max_size=10)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=5)


@given(pairs, st.integers(2, 14), st.sampled_from([[], [MASK]]))
def test_texts_predict_each_target_from_what_is_before_it(
    rows: list[tuple[list[int], list[int]]], block: int, prefix: list[int]
) -> None:
    examples = [CausalExample([*a, *b], [False] * len(a) + [True] * len(b)) for a, b in rows]
    batch = CausalDataset([], RowFormat(block, PAD, prefix)).collate(examples)
    whole = [
        ([*prefix, *example.ids], [*[False] * len(prefix), *example.targets])
        for example in examples
    ]
    assert_rows(batch.input_ids, [ids[: block + 1][:-1] for ids, _ in whole], block)
    targets = [
        [i if target else IGNORE for i, target in zip(ids, of_row, strict=True)][1 : block + 1]
        for ids, of_row in whole
    ]
    assert_rows(batch.labels, targets, block, IGNORE)
