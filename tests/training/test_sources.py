"""What each step sees."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from texts_of import texts_of

from regard.text.batches import row_lengths
from regard.text.vocabulary import MASK
from regard.training import sources
from regard.training.sources import Source, Stream

BLOCK = 8


def numbered(n: int) -> list[list[int]]:
    """Documents that can be told apart by their first token."""
    return [[10 + i, 2, 3] for i in range(n)]


def seen(stream: Stream, steps: range) -> list[int]:
    return [int(row[0]) for step in steps for row in texts_of(stream, step).ids]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(1, 30), st.integers(1, 12), st.booleans(), st.integers(0, 5))
def test_an_epoch_sees_every_document_once(n: int, batch: int, shuffle: bool, seed: int) -> None:
    stream = Stream(
        [sources.documents(numbered(n), BLOCK)],
        batch=batch, block=BLOCK, seed=seed, epochs=2, shuffle=shuffle,
    )  # fmt: skip
    half = stream.steps // 2
    for epoch in (range(half), range(half, stream.steps)):
        assert sorted(seen(stream, epoch)) == [10 + i for i in range(n)]


def test_without_shuffling_the_order_is_that_of_the_file() -> None:
    made = [sources.documents(numbered(5), BLOCK)]
    stream = Stream(made, batch=2, block=BLOCK, seed=0, epochs=1, shuffle=False)
    assert seen(stream, range(3)) == [10, 11, 12, 13, 14]


def test_each_epoch_has_an_order_of_its_own() -> None:
    made = [sources.documents(numbered(20), BLOCK)]
    stream = Stream(made, batch=20, block=BLOCK, seed=0, epochs=2)
    assert seen(stream, range(1)) != seen(stream, range(1, 2))


def test_rows_of_a_step_are_of_similar_length() -> None:
    draw = np.random.default_rng(0)
    documents = [[10] * int(n) for n in draw.integers(1, 64, 320)]
    stream = Stream([sources.documents(documents, 64)], batch=8, block=64, seed=0, epochs=3)
    batches = [texts_of(stream, step).ids for step in range(stream.steps)]
    positions = sum(len(ids) * int(row_lengths(ids).max()) for ids in batches)
    assert positions < 1.1 * 3 * sum(map(len, documents))


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(40, 300), st.integers(4, 12))
def test_what_comes_together_is_drawn_anew_each_epoch(n: int, batch: int) -> None:
    documents = [[10 + i] * (1 + i) for i in range(n)]  # none is as long as another
    stream = Stream([sources.documents(documents, n)], batch=batch, block=n, seed=0, epochs=2)
    half = stream.steps // 2
    first, second = (
        [set(seen(stream, range(step, step + 1))) for step in range(start, start + half)]
        for start in (0, half)
    )
    overlaps = [max(len(rows & other) for other in second) / len(rows) for rows in first]
    assert sum(overlaps) / len(overlaps) < 0.75
    assert first[-1] != second[-1]


def test_a_batch_depends_on_its_step_alone() -> None:
    def make() -> Stream:
        corrupted = sources.corrupted([list(range(2, 40))] * 9, 32, 0.5)
        documents = sources.documents(numbered(9), 32, 0.5)
        return Stream([corrupted, documents], batch=4, block=32, seed=3, steps=20)

    forwards = [texts_of(make(), step).ids.tolist() for step in range(20)]
    stream = make()
    backwards = [texts_of(stream, step).ids.tolist() for step in reversed(range(20))]
    assert forwards == backwards[::-1]


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=4), st.integers(1, 200))
def test_shares_hold_at_every_moment(shares: list[float], steps: int) -> None:
    made = [Source(sources.documents([[100 + i, 2]], BLOCK).examples, s) for i, s in
            enumerate(shares)]  # fmt: skip
    stream = Stream(made, batch=1, block=BLOCK, seed=0, steps=steps)
    turns = [first - 100 for first in seen(stream, range(steps))]
    for until in range(1, steps + 1):
        counts = Counter(turns[:until])
        for i, share in enumerate(shares):
            # Fair scheduling keeps every source within one turn for each of the others.
            assert abs(counts[i] - until * share / sum(shares)) <= len(shares)


def test_epochs_count_the_largest_source() -> None:
    made = [sources.documents(numbered(20), BLOCK, 0.8), sources.documents(numbered(3), BLOCK, 0.2)]
    stream = Stream(made, batch=2, block=BLOCK, seed=0, epochs=4)
    assert stream.steps == 4 * 10 / 0.8


def test_questions_may_come_in_batches_of_their_own_size() -> None:
    made = [
        sources.documents(numbered(8), BLOCK, 0.5),
        sources.questions([([5, 6], [7])] * 9, 0.5, 3),
    ]
    stream = Stream(made, batch=4, block=BLOCK, seed=0, steps=8)
    assert Counter(len(texts_of(stream, step).ids) for step in range(8)) == {4: 4, 3: 4}


def test_a_long_document_is_cut_into_pieces_and_nothing_is_lost() -> None:
    document = list(range(10, 31))
    source = sources.documents([document], BLOCK)
    draw = np.random.default_rng(0)
    pieces = [list(make(draw).ids) for make in source.examples]
    assert all(len(piece) <= BLOCK + 1 for piece in pieces)
    assert all(one[-1] == other[0] for one, other in pairwise(pieces))
    predicted = [token for piece in pieces for token in piece[1:]]
    assert [token for token in predicted if token != MASK] == document[1:]
    assert predicted[-1] == MASK


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(2, 60), st.integers(0, 9))
def test_windows_cover_a_text(length: int, seed: int) -> None:
    text = list(range(100, 100 + length))
    source = sources.windows(text, BLOCK)
    draw = np.random.default_rng(seed)
    covered: set[int] = set()
    for _ in range(40):
        for make in source.examples:
            ids = list(make(draw).ids)
            assert ids == text[ids[0] - 100 :][: BLOCK + 1]
            covered.update(ids)
    assert covered == set(text)
