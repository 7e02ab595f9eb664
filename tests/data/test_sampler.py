"""What each step sees."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batch import RowFormat, Sampler, WeightedDataset, sequential_batches
from regard.data.causal import Documents, Questions, SpanCorruption

BLOCK, PAD, MASK = 8, 0, 1


def numbered(n: int) -> list[list[int]]:
    """Documents that can be told apart by their first token."""
    return [[10 + i, 2, 3] for i in range(n)]


def documents(ids: list[list[int]], block: int = BLOCK, share: float = 1.0) -> WeightedDataset:
    return WeightedDataset(Documents(ids, RowFormat(block, PAD), end=[MASK]), share)


def seen(sampler: Sampler, steps: range) -> list[int]:
    return [int(row[0]) for step in steps for row in sampler.batch(step).input_ids]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(1, 30), st.integers(1, 12), st.booleans(), st.integers(0, 5))
def test_an_epoch_sees_every_document_once(n: int, batch: int, shuffle: bool, seed: int) -> None:
    sampler = Sampler(
        [documents(numbered(n))], batch_size=batch, seed=seed, epochs=2, shuffle=shuffle
    )
    half = sampler.steps // 2
    for epoch in (range(half), range(half, sampler.steps)):
        assert sorted(seen(sampler, epoch)) == [10 + i for i in range(n)]


def test_rows_of_a_step_are_of_similar_length() -> None:
    draw = np.random.default_rng(0)
    texts = [[10] * int(n) for n in draw.integers(1, 64, 320)]
    sampler = Sampler([documents(texts, 64)], batch_size=8, seed=0, epochs=3)
    inputs = [sampler.batch(step).inputs["input_ids"] for step in range(sampler.steps)]
    positions = sum(len(rows.ids) * int(rows.lengths.max()) for rows in inputs)
    assert positions < 1.1 * 3 * sum(map(len, texts))


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(40, 300), st.integers(4, 12))
def test_what_comes_together_is_drawn_anew_each_epoch(n: int, batch: int) -> None:
    texts = [[10 + i] * (1 + i) for i in range(n)]  # none is as long as another
    sampler = Sampler([documents(texts, n)], batch_size=batch, seed=0, epochs=2)
    half = sampler.steps // 2
    first, second = (
        [set(seen(sampler, range(step, step + 1))) for step in range(start, start + half)]
        for start in (0, half)
    )
    overlaps = [max(len(rows & other) for other in second) / len(rows) for rows in first]
    assert sum(overlaps) / len(overlaps) < 0.75
    assert first[-1] != second[-1]


def make_sampler() -> Sampler:
    corrupted = SpanCorruption([list(range(2, 40))] * 9, RowFormat(32, PAD), mask=MASK)
    datasets = [WeightedDataset(corrupted, 0.5), documents(numbered(9), 32, 0.5)]
    return Sampler(datasets, batch_size=4, seed=3, steps=20)


def test_a_batch_depends_on_its_step_alone() -> None:
    forwards = [make_sampler().batch(step).input_ids.tolist() for step in range(20)]
    sampler = make_sampler()
    backwards = [sampler.batch(step).input_ids.tolist() for step in reversed(range(20))]
    assert forwards == backwards[::-1]


def test_rows_before_a_step_are_counted() -> None:
    sampler, rows = make_sampler(), 0
    for step in range(20):
        assert sampler.rows_before(step) == rows
        rows += len(sampler.batch(step).input_ids)


def test_sequential_batches_hold_every_example_in_order() -> None:
    batches = list(sequential_batches(Documents(numbered(5), RowFormat(BLOCK, PAD)), 2))
    assert [len(batch.input_ids) for batch in batches] == [2, 2, 1]
    assert [int(row[0]) for batch in batches for row in batch.input_ids] == [10, 11, 12, 13, 14]


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=4), st.integers(1, 200))
def test_shares_hold_at_every_moment(shares: list[float], steps: int) -> None:
    made = [documents([[100 + i, 2]], BLOCK, share) for i, share in enumerate(shares)]
    sampler = Sampler(made, batch_size=1, seed=0, steps=steps)
    turns = [first - 100 for first in seen(sampler, range(steps))]
    for until in range(1, steps + 1):
        counts = Counter(turns[:until])
        for i, share in enumerate(shares):
            # Fair scheduling keeps every dataset within one turn for each of the others.
            assert abs(counts[i] - until * share / sum(shares)) <= len(shares)


def test_epochs_count_the_dataset_with_the_largest_share() -> None:
    made = [documents(numbered(20), BLOCK, 0.8), documents(numbered(3), BLOCK, 0.2)]
    sampler = Sampler(made, batch_size=2, seed=0, epochs=4)
    assert sampler.steps == 4 * 10 / 0.8


def test_questions_may_come_in_batches_of_their_own_size() -> None:
    questions = Questions([([5, 6], [MASK, 7])] * 9, RowFormat(BLOCK, PAD))
    made = [documents(numbered(8), BLOCK, 0.5), WeightedDataset(questions, 0.5, 3)]
    sampler = Sampler(made, batch_size=4, seed=0, steps=8)
    assert Counter(len(sampler.batch(step).input_ids) for step in range(8)) == {4: 4, 3: 4}
