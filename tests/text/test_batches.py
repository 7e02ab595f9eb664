"""Examples in tensors: every label stands where its token is predicted."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.text.batches import TextBatch, make_batch, pad_rows
from regard.text.objectives import IGNORE, Example
from regard.text.vocabulary import MASK, PAD


@st.composite
def some_examples(draw: st.DrawFn) -> list[Example]:
    pairs = st.lists(st.tuples(st.integers(MASK, 50), st.booleans()), min_size=2, max_size=12)
    rows = draw(st.lists(pairs, min_size=1, max_size=6))
    return [Example([i for i, _ in row], [target for _, target in row]) for row in rows]


@given(some_examples(), st.integers(1, 14))
def test_each_position_predicts_the_next_token_where_it_is_a_target(
    examples: list[Example], block: int
) -> None:
    batch = make_batch(examples, block)
    longest = min(block, max(len(example.ids) for example in examples) - 1)
    assert batch.ids.shape == batch.labels.shape == (len(examples), longest)
    for row, example in enumerate(examples):
        for i in range(longest):
            inside = i + 1 < len(example.ids)
            assert batch.ids[row, i] == (example.ids[i] if inside else PAD)
            wanted = example.ids[i + 1] if inside and example.targets[i + 1] else IGNORE
            assert batch.labels[row, i] == wanted


@given(some_examples(), st.integers(1, 14))
def test_targets_are_counted_up_to_the_block(examples: list[Example], block: int) -> None:
    expected = sum(sum(example.targets[1 : block + 1]) for example in examples)
    assert make_batch(examples, block).n_targets == expected


@given(some_examples(), st.integers(1, 9))
def test_splitting_keeps_all_rows_without_needless_padding(
    examples: list[Example], parts: int
) -> None:
    batch = make_batch(examples, 14)
    split = batch.split(parts)
    assert sorted(row for part in split for row in rows(part)) == sorted(rows(batch))
    sizes = [len(part.ids) for part in split]
    assert len(sizes) == min(parts, len(examples))
    assert max(sizes) - min(sizes) <= 1
    for part in split:
        assert part.ids.shape == part.labels.shape
        assert parts == 1 or (part.ids[:, -1] != PAD).any()
    assert sum(part.n_targets for part in split) == batch.n_targets


def rows(batch: TextBatch) -> list[list[tuple[int, int]]]:
    """Ids and labels of each row, without its padding."""
    pairs = zip(batch.ids.tolist(), batch.labels.tolist(), strict=True)
    return [[p for p in zip(i, y, strict=True) if p[0] != PAD] for i, y in pairs]


def test_a_batch_moves_as_a_whole() -> None:
    moved = TextBatch(torch.zeros(2, 3), torch.ones(2, 3)).to(torch.device("meta"))
    assert moved.ids.is_meta
    assert moved.labels.is_meta


@pytest.mark.parametrize("rows", [[[5, 6, 7], [8]], [[5]], [[], [5]], [[], []]])
def test_padding_fills_the_ends_with_whole_numbers(rows: list[list[int]]) -> None:
    padded = pad_rows(rows, 9)
    assert padded.dtype == torch.int64
    longest = max(map(len, rows))
    assert padded.tolist() == [row + [9] * (longest - len(row)) for row in rows]
