"""What each kind of batch holds, read off position by position."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.text.objectives import IGNORE, EncodedExample, begin
from regard.text.vocabulary import MASK, PAD
from regard.training.collate import (
    given_batch,
    label_batch,
    masked_batch,
    match_batch,
    pair_batch,
    segment_batch,
    text_batch,
)

token = st.integers(MASK + 1, 50)
texts = st.lists(token, min_size=1, max_size=10)
prefixes = st.sampled_from([[], [MASK]])
blocks = st.integers(2, 14)
SOURCE_BLOCK = 10
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=5)
labeled = st.lists(
    st.lists(st.tuples(token, token | st.just(IGNORE)), min_size=1, max_size=10),
    min_size=1,
    max_size=5,
)
"""Rows of ids, each with its label."""


def apart(rows: Sequence[Sequence[tuple[int, int]]]) -> list[tuple[list[int], list[int]]]:
    """Ids and labels of each row."""
    return [([i for i, _ in row], [y for _, y in row]) for row in rows]


def assert_rows(
    tensor: Tensor, rows: Sequence[Sequence[int]], block: int, padding: int = PAD
) -> None:
    """The tensor holds the rows, each filled up to a multiple of 4 that fits the block."""
    longest = max(map(len, rows))
    multiple = longest + -longest % 4
    assert tensor.shape == (len(rows), max(longest, min(multiple, block)))
    for found, row in zip(tensor.tolist(), rows, strict=True):
        assert found[: len(row)] == list(row)
        assert set(found[len(row) :]) <= {padding}


@given(pairs, blocks, prefixes)
def test_texts_predict_each_target_from_what_is_before_it(
    rows: list[tuple[list[int], list[int]]], block: int, prefix: list[int]
) -> None:
    examples = [EncodedExample([*a, *b], [False] * len(a) + [True] * len(b)) for a, b in rows]
    batch = text_batch(examples, block, prefix)
    whole = [begin(prefix, example) for example in examples]
    assert_rows(batch.ids, [example.ids[: block + 1][:-1] for example in whole], block)
    targets = [
        [i if target else IGNORE for i, target in zip(e.ids, e.targets, strict=True)][1 : block + 1]
        for e in whole
    ]
    assert_rows(batch.labels, targets, block, IGNORE)


@given(labeled, blocks, prefixes)
def test_given_rows_stay_as_they_are(
    rows: list[list[tuple[int, int]]], block: int, prefix: list[int]
) -> None:
    batch = given_batch(apart(rows), block, prefix)
    assert_rows(batch.ids, [ids for ids, _ in apart(rows)], 0)
    assert_rows(batch.labels, [labels for _, labels in apart(rows)], 0, IGNORE)


@given(labeled, blocks, prefixes)
def test_a_masked_text_keeps_ids_and_labels_side_by_side(
    rows: list[list[tuple[int, int]]], block: int, prefix: list[int]
) -> None:
    batch = masked_batch(apart(rows), block, prefix)
    kept = [[*((i, IGNORE) for i in prefix), *row][:block] for row in rows]
    assert_rows(batch.ids, [ids for ids, _ in apart(kept)], block)
    assert_rows(batch.labels, [labels for _, labels in apart(kept)], block, IGNORE)
    assert batch.lengths.tolist() == [len(row) for row in kept]


@given(pairs, blocks, prefixes)
def test_a_target_is_predicted_from_its_beginning_to_its_end(
    rows: list[tuple[list[int], list[int]]], block: int, prefix: list[int]
) -> None:
    batch = pair_batch(rows, block, prefix, max_source_tokens=SOURCE_BLOCK)
    assert_rows(batch.source, [source for source, _ in rows], SOURCE_BLOCK)
    assert batch.lengths.tolist() == [len(source) for source, _ in rows]
    assert_rows(batch.ids, [[MASK, *target] for _, target in rows], block)
    assert_rows(batch.labels, [[*target, MASK] for _, target in rows], block, IGNORE)


@given(st.lists(st.tuples(texts, st.integers(0, 3)), min_size=1, max_size=5), prefixes)
def test_a_text_has_one_label(rows: list[tuple[list[int], int]], prefix: list[int]) -> None:
    batch = label_batch(rows, 12, prefix)
    assert_rows(batch.ids, [[*prefix, *text] for text, _ in rows], 12)
    assert batch.lengths.tolist() == [len(prefix) + len(text) for text, _ in rows]
    assert batch.labels.tolist() == [label for _, label in rows]


@given(pairs, prefixes)
def test_what_begins_two_texts_is_of_the_first(
    rows: list[tuple[list[int], list[int]]], prefix: list[int]
) -> None:
    parts = [[0] * len(one) + [1] * len(other) for one, other in rows]
    both = [([*one, *other], of, 2) for (one, other), of in zip(rows, parts, strict=True)]
    batch = segment_batch(both, 12, prefix)
    assert_rows(batch.ids, [[*prefix, *ids] for ids, _, _ in both], 12)
    assert_rows(batch.segments, [[0] * len(prefix) + of for of in parts], 12, 0)
    assert batch.lengths.tolist() == [len(prefix) + len(ids) for ids, _, _ in both]
    assert batch.labels.tolist() == [2] * len(rows)


@given(pairs, prefixes)
def test_a_question_stands_where_its_document_does(
    rows: list[tuple[list[int], list[int]]], prefix: list[int]
) -> None:
    batch = match_batch(rows, 12, prefix)
    assert_rows(batch.questions, [[*prefix, *question] for question, _ in rows], 12)
    assert_rows(batch.documents, [[*prefix, *document] for _, document in rows], 12)
    assert batch.question_lengths.tolist() == [len(prefix) + len(q) for q, _ in rows]
    assert batch.document_lengths.tolist() == [len(prefix) + len(d) for _, d in rows]
