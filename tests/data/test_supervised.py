"""Supervised examples: what a batch of each kind holds, read off position by position."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from rows import assert_rows

from regard.data import IGNORE
from regard.data.batch import RowFormat
from regard.data.supervised import ContrastivePairs, LabeledTexts, LabeledTokens, SequencePairs

PAD, MASK = 0, 1
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


@given(labeled, blocks, prefixes)
def test_labels_of_tokens_stay_beside_their_ids(
    rows: list[list[tuple[int, int]]], block: int, prefix: list[int]
) -> None:
    batch = LabeledTokens(apart(rows), RowFormat(block, PAD, prefix)).collate(apart(rows))
    kept = [[*((i, IGNORE) for i in prefix), *row][:block] for row in rows]
    assert_rows(batch.input_ids, [ids for ids, _ in apart(kept)], block)
    assert_rows(batch.labels, [labels for _, labels in apart(kept)], block, IGNORE)
    assert batch.inputs["input_ids"].lengths.tolist() == [len(row) for row in kept]


@given(pairs, blocks, prefixes)
def test_a_target_is_predicted_from_its_beginning_to_its_end(
    rows: list[tuple[list[int], list[int]]], block: int, prefix: list[int]
) -> None:
    pairs = [(source, [MASK, *target, MASK]) for source, target in rows]
    format = RowFormat(block, PAD, prefix)
    batch = SequencePairs(pairs, format, max_source_tokens=SOURCE_BLOCK).collate(pairs)
    assert_rows(batch.inputs["source"].ids, [source for source, _ in rows], SOURCE_BLOCK)
    assert batch.inputs["source"].lengths.tolist() == [len(source) for source, _ in rows]
    assert_rows(batch.input_ids, [[MASK, *target] for _, target in rows], block)
    assert_rows(batch.labels, [[*target, MASK] for _, target in rows], block, IGNORE)


@given(st.lists(st.tuples(texts, st.integers(0, 3)), min_size=1, max_size=5), prefixes)
def test_a_text_has_one_label(rows: list[tuple[list[int], int]], prefix: list[int]) -> None:
    batch = LabeledTexts(rows, RowFormat(12, PAD, prefix)).collate(rows)
    assert_rows(batch.input_ids, [[*prefix, *text] for text, _ in rows], 12)
    assert batch.inputs["input_ids"].lengths.tolist() == [
        len(prefix) + len(text) for text, _ in rows
    ]
    assert batch.labels.tolist() == [label for _, label in rows]


@given(pairs, prefixes)
def test_what_begins_two_texts_is_of_the_first(
    rows: list[tuple[list[int], list[int]]], prefix: list[int]
) -> None:
    parts = [[0] * len(one) + [1] * len(other) for one, other in rows]
    both = [([*one, *other], of, 2) for (one, other), of in zip(rows, parts, strict=True)]
    batch = LabeledTexts(both, RowFormat(24, PAD, prefix)).collate(both)
    assert_rows(batch.input_ids, [[*prefix, *ids] for ids, _, _ in both], 24)
    assert_rows(batch.inputs["token_type_ids"].ids, [[0] * len(prefix) + of for of in parts], 24, 0)
    assert batch.inputs["input_ids"].lengths.tolist() == [
        len(prefix) + len(ids) for ids, _, _ in both
    ]
    assert batch.labels.tolist() == [2] * len(rows)


@given(pairs, prefixes)
def test_a_question_stands_where_its_document_does(
    rows: list[tuple[list[int], list[int]]], prefix: list[int]
) -> None:
    batch = ContrastivePairs(rows, RowFormat(12, PAD, prefix)).collate(rows)
    assert_rows(batch.inputs["questions"].ids, [[*prefix, *question] for question, _ in rows], 12)
    assert_rows(batch.inputs["documents"].ids, [[*prefix, *document] for _, document in rows], 12)
    assert batch.inputs["questions"].lengths.tolist() == [len(prefix) + len(q) for q, _ in rows]
    assert batch.inputs["documents"].lengths.tolist() == [len(prefix) + len(d) for _, d in rows]
