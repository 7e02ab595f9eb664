"""Packed rows: every token is predicted once, in a row with its own document alone."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import IGNORE, packing
from regard.data.batch import Dataset, RowFormat, Sampler, WeightedDataset
from regard.data.packing import PADDING, Joined, Mixture, PackedDocuments
from regard.errors import UserError

BOS, EOS, VOCABULARY = 1, 2, 1000
RNG = np.random.default_rng(0)
DOCUMENTS = st.lists(st.integers(0, 30), min_size=1, max_size=12)
AFFIXES = st.sampled_from([((), ()), ((BOS,), ()), ((), (EOS,)), ((BOS,), (EOS,)), ((5, BOS), ())])


def dataset(
    lengths: list[int],
    n: int = 8,
    *,
    packing: bool = True,
    prefix: tuple[int, ...] = (),
    suffix: tuple[int, ...] = (),
) -> PackedDocuments:
    """Documents of these lengths, whose ids are all different."""
    return PackedDocuments(
        np.arange(10, 10 + sum(lengths), dtype="<u2"),
        np.cumsum([0, *lengths])[:-1],
        RowFormat(n, pad=0),
        packing=packing,
        prefix=prefix,
        suffix=suffix,
        vocabulary=VOCABULARY,
    )


def documents_of(lengths: list[int]) -> list[list[int]]:
    ids = iter(range(10, 10 + sum(lengths)))
    return [[next(ids) for _ in range(length)] for length in lengths]


@given(DOCUMENTS, AFFIXES, st.integers(2, 9), st.booleans())
def test_every_token_but_the_first_is_predicted_once(
    lengths: list[int], affixes: tuple[tuple[int, ...], tuple[int, ...]], n: int, packing: bool
) -> None:
    prefix, suffix = affixes
    rows = dataset(lengths, n, packing=packing, prefix=prefix, suffix=suffix)
    predicted = Counter(
        label
        for index in range(len(rows))
        for part in rows.example(index, RNG)
        for label in part.labels
        if label != IGNORE
    )
    expected: Counter[int] = Counter()
    for document in documents_of(lengths):
        if document:
            expected.update([*document, *suffix] if prefix else [*document, *suffix][1:])
    assert predicted == expected


@given(DOCUMENTS, AFFIXES, st.integers(2, 9), st.booleans())
def test_parts_are_documents_cut_at_the_context_length(
    lengths: list[int], affixes: tuple[tuple[int, ...], tuple[int, ...]], n: int, packing: bool
) -> None:
    prefix, suffix = affixes
    rows = dataset(lengths, n, packing=packing, prefix=prefix, suffix=suffix)
    parts = [part for index in range(len(rows)) for part in rows.example(index, RNG)]
    whole = [[*prefix, *document, *suffix] for document in documents_of(lengths) if document]
    expected = [
        document[start : start + n + 1]
        for document in whole
        for start in range(0, len(document) - 1, n)
    ]
    assert [list(part.ids) for part in parts] == [ids[:-1] for ids in expected]


@given(DOCUMENTS, st.integers(2, 9), st.sampled_from([0, 2, packing.MANY]))
def test_rows_fit_and_no_row_could_take_the_next_part(
    lengths: list[int], n: int, many: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "MANY", many)
        rows = dataset(lengths, n)
    sizes = [[len(part.ids) for part in rows.example(i, RNG)] for i in range(len(rows))]
    assert all(0 < sum(row) <= n for row in sizes)
    assert all(sum(row) + after[0] > n for row, after in pairwise(sizes))


@given(DOCUMENTS, st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_is_a_permutation_of_the_rows(
    lengths: list[int], batch_size: int, seed: int
) -> None:
    rows = dataset([*lengths, 5])
    sampler = Sampler([WeightedDataset(rows)], batch_size=batch_size, seed=seed, epochs=1)
    read = Counter(
        id_
        for step in range(sampler.steps)
        for id_ in sampler.batch(step).labels.flatten().tolist()
    )
    in_order = Counter(
        label for i in range(len(rows)) for part in rows.example(i, RNG) for label in part.labels
    )
    read.pop(IGNORE, None)
    assert read == in_order


def test_a_batch_names_the_documents_of_a_row() -> None:
    rows = dataset([4, 3, 2, 6])
    batch = rows.collate([rows.example(0, RNG), rows.example(1, RNG)])
    ids = batch.inputs["document_ids"].ids.tolist()
    assert ids == [[0, 0, 0, 1, 1, 2, PADDING, PADDING], [0, 0, 0, 0, 0, *[PADDING] * 3]]
    assert batch.input_ids[0, :6].tolist() == [10, 11, 12, 14, 15, 17]
    assert batch.labels[0, :6].tolist() == [11, 12, 13, 15, 16, 18]
    assert batch.positions == 16


def mixture(datasets: list[PackedDocuments], weights: list[int]) -> Mixture:
    """A mixture whose order, which takes long to make, repeats sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "PATTERN", 2000)
        return Mixture(datasets, weights)


@given(DOCUMENTS, st.booleans())
def test_all_lengths_at_once_are_those_of_the_rows(lengths: list[int], packing: bool) -> None:
    rows = dataset([*lengths, 5, 30], packing=packing)
    fewer = rows.spread(10)
    mixed = mixture([rows, dataset([9] * 5, packing=packing)], [2, 1])
    for one in (rows, fewer, mixed):
        assert one.lengths().tolist() == [one.length(index) for index in range(len(one))]


def test_spread_rows_are_evenly_spaced() -> None:
    rows = dataset([9] * 20)
    fewer = rows.spread(40)
    assert [fewer.rows[i] for i in range(len(fewer))] == [0, 4, 8, 12, 16]
    assert len(rows.spread(10**6)) == len(rows) == 20


def test_an_id_beyond_the_vocabulary_is_refused() -> None:
    rows = PackedDocuments(
        np.array([3, 4, 99]),
        np.array([0]),
        RowFormat(8, pad=0),
        packing=True,
        vocabulary=99,
        path=Path("training.bin"),
    )
    with pytest.raises(UserError, match=r"training.bin: holds the id 99, .* has 99 ids"):
        rows.example(0, RNG)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 9)), min_size=2, max_size=4))
def test_a_mixture_has_every_row_and_the_shares_of_its_weights(
    sources: list[tuple[int, int]],
) -> None:
    weights = [weight for _, weight in sources]
    mixed = mixture([dataset([9] * size) for size, _ in sources], weights)
    drawn = [mixed.source(index) for index in range(len(mixed))]
    assert set(drawn) == {(s, row) for s, (size, _) in enumerate(sources) for row in range(size)}
    for source, weight in enumerate(weights):
        count = sum(one == source for one, _ in drawn)
        # The source that is farthest behind comes next: never a whole row per source behind.
        assert abs(count - len(mixed) * weight / sum(weights)) <= len(sources)


def test_every_row_of_a_mixture_occurs() -> None:
    sizes, weights = [20_000, 2, 3000, 2], [1, 0.7, 5, 0.1]
    sources = [Dataset(range(size), RowFormat(8, pad=0)) for size in sizes]
    mixed = Mixture(sources, weights)
    seen = Counter(mixed.source(i) for i in range(len(mixed)))
    assert len(seen) == sum(sizes)


def test_a_source_of_a_mixture_repeats_in_its_order() -> None:
    mixed = Mixture([dataset([9] * 3), dataset([9] * 50)], [1, 1])
    rows = [row for source, row in map(mixed.source, range(len(mixed))) if source == 0]
    assert rows[:7] == [0, 1, 2, 0, 1, 2, 0]
    assert len(mixed) == 100


def test_a_mixture_is_a_function_of_seed_and_step() -> None:
    def batches(seed: int) -> list[list[list[int]]]:
        mixed = Mixture([dataset([9] * 30), dataset([7] * 20)], [0.7, 0.3])
        sampler = Sampler([WeightedDataset(mixed)], batch_size=4, seed=seed, epochs=1)
        return [sampler.batch(step).input_ids.tolist() for step in (5, 0, 3)]

    assert batches(1) == batches(1) != batches(2)


def test_a_weight_that_is_too_small_is_refused() -> None:
    with pytest.raises(UserError, match=r"--mix: the weight 1e-06 of corpus 2 is too small"):
        Mixture([dataset([9] * 3), dataset([9] * 50)], [1, 1e-6])


def test_a_mixture_of_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, weights = [dataset([9] * 3), dataset([9] * 50)], [1, 0.1]
    assert len(Mixture(sources, weights)) > 500
    monkeypatch.setattr(packing, "LONGEST", 500)
    with pytest.raises(UserError, match=r"--mix: the weight 0.1 of corpus 2 is too small"):
        Mixture(sources, weights)


def test_corpora_without_weights_occur_once_and_evenly() -> None:
    corpora = [dataset([5] * 3000), dataset([5] * 30), dataset([5])]
    joined = Joined(corpora)
    drawn = [joined.source(index) for index in range(len(joined))]
    assert len(drawn) == len(set(drawn)) == sum(map(len, corpora))
    small = [index for index, (source, _) in enumerate(drawn) if source == 1]
    assert np.ptp(np.diff(small)) <= 2
    assert joined.lengths().tolist() == [joined.length(index) for index in range(len(joined))]
