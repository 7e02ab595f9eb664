"""Examples in tensors: every label stands where its token is predicted."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data import IGNORE
from regard.data.batch import (
    EVALUATED_TOKENS,
    Batch,
    PaddedIds,
    RowFormat,
    evaluation_batches,
    pad_rows,
    padded_size,
)
from regard.data.causal import CausalDataset, CausalExample

PAD, FIRST = 0, 1


@st.composite
def some_examples(draw: st.DrawFn) -> list[CausalExample]:
    pairs = st.lists(st.tuples(st.integers(FIRST, 50), st.booleans()), min_size=2, max_size=12)
    rows = draw(st.lists(pairs, min_size=1, max_size=6))
    return [CausalExample([i for i, _ in row], [target for _, target in row]) for row in rows]


def make_batch(examples: list[CausalExample], context_length: int) -> Batch:
    return CausalDataset([], RowFormat(context_length, PAD)).collate(examples)


@given(some_examples(), st.integers(1, 14))
def test_each_position_predicts_the_next_token_where_it_is_a_target(
    examples: list[CausalExample], block: int
) -> None:
    batch = make_batch(examples, block)
    longest = min(block, max(len(example.ids) for example in examples) - 1)
    n = min(block, padded_size(longest))
    assert batch.input_ids.shape == batch.labels.shape == (len(examples), n)
    for row, example in enumerate(examples):
        for i in range(n):
            inside = i + 1 < len(example.ids)
            assert batch.input_ids[row, i] == (example.ids[i] if inside else PAD)
            wanted = example.ids[i + 1] if inside and example.targets[i + 1] else IGNORE
            assert batch.labels[row, i] == wanted


@given(some_examples(), st.integers(1, 9))
def test_splitting_keeps_all_rows_without_needless_padding(
    examples: list[CausalExample], parts: int
) -> None:
    batch = make_batch(examples, 14)
    split = batch.split(parts)
    assert sorted(row for part in split for row in rows(part)) == sorted(rows(batch))
    sizes = [len(part.input_ids) for part in split]
    assert len(sizes) == min(parts, len(examples))
    assert max(sizes) - min(sizes) <= 1
    for part in split:
        assert part.input_ids.shape == part.labels.shape
        longest = max(len(row) for row in rows(part))
        assert part.input_ids.shape[1] == min(padded_size(longest), batch.input_ids.shape[1])
    assert sum(part.n_targets for part in split) == batch.n_targets


def rows(batch: Batch) -> list[list[tuple[int, int]]]:
    """Ids and labels of each row, without its padding."""
    pairs = zip(batch.input_ids.tolist(), batch.labels.tolist(), strict=True)
    return [[p for p in zip(i, y, strict=True) if p[0] != PAD] for i, y in pairs]


def test_a_batch_moves_as_a_whole() -> None:
    inputs = {"input_ids": PaddedIds.of([[1, 2], [3]], PAD)}
    moved = Batch(inputs, torch.ones(2), in_batch_negatives=True).to(torch.device("meta"))
    assert moved.input_ids.is_meta
    assert moved.inputs["input_ids"].lengths.is_meta
    assert moved.labels.is_meta
    assert moved.in_batch_negatives


def test_padding_is_known_by_lengths_and_not_by_ids() -> None:
    """A row may hold the id of the padding, also at its end."""
    pad = 7
    padded = PaddedIds.of([[pad, pad, pad, pad, pad], [1]], pad, limit=8)
    assert padded.take(torch.tensor([0])).ids.tolist() == [[pad] * 8]
    assert padded.take(torch.tensor([1])).ids.tolist() == [[1] + [pad] * 3]
    assert padded.take(torch.tensor([1, 0])).lengths.tolist() == [1, 5]


def test_a_batch_of_negatives_is_not_split() -> None:
    inputs = {
        "questions": PaddedIds.of([[1], [2]], PAD),
        "documents": PaddedIds.of([[3], [4]], PAD),
    }
    batch = Batch(inputs, torch.arange(2), in_batch_negatives=True)
    assert batch.split(2) == [batch]
    assert (batch.n_targets, batch.positions) == (2, 4)


def test_padding_fills_the_ends_with_whole_numbers_as_far_as_the_limit_allows() -> None:
    cases: list[list[list[int]]] = [[[5, 6, 7], [8]], [[5]], [[], [5]], [[], []]]
    for rows in cases:
        padded = pad_rows(rows, 9)
        assert padded.dtype == torch.int64
        longest = max(map(len, rows))
        assert padded.tolist() == [row + [9] * (longest - len(row)) for row in rows]
    for longest, limit, expected in ((5, 12, 8), (8, 12, 8), (9, 10, 10), (12, 12, 12), (5, 3, 5)):
        row = [5] * longest
        assert pad_rows([row, [6]], 9, limit=limit)[0].tolist() == row + [9] * (expected - longest)


def test_padded_sizes_are_few_and_not_much_larger() -> None:
    sizes = [padded_size(n) for n in range(1, 1025)]
    assert len(set(sizes)) == 48
    assert all(0 <= size - n < max(4, n / 8) for n, size in enumerate(sizes, 1))
    assert [padded_size(size) for size in sizes] == sizes
    assert padded_size(0) == 0


@given(st.lists(st.integers(0, 3 * EVALUATED_TOKENS // 2)), st.integers(1, 5))
def test_batches_of_evaluation_are_as_large_as_the_budget_allows(
    lengths: list[int], rows: int
) -> None:
    def fits(part: list[int]) -> bool:
        tokens = len(part) * padded_size(max(part))
        return len(part) == 1 or (len(part) <= rows and tokens <= EVALUATED_TOKENS)

    parts = [lengths[part] for part in evaluation_batches(lengths, rows)]
    assert [length for part in parts for length in part] == lengths
    assert all(fits(part) for part in parts)
    assert not any(fits([*part, after[0]]) for part, after in pairwise(parts))
