"""Probes of circuits against their definitions, by plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from regard.data import IGNORE
from regard.tasks.circuit_probes import (
    ASK,
    BEGIN,
    FIRST_NAME,
    BigramBackcopyConfig,
    IndirectObjectConfig,
    RepeatedConfig,
)
from regard.tasks.probes import draw_probe, draw_probe_test

UNLIKELY = 1e-3
"""A fixed seed decides each draw: a test that passes once passes always."""
ROWS = 4
seeds = st.integers(0, 2**32 - 1)


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 6), st.integers(1, 9), seeds)
def test_repeated_asks_for_all_ids_but_those_of_the_first_copy(
    vocabulary: int, shortest: int, more: int, beyond: int, seed: int
) -> None:
    longest = shortest + more
    config = RepeatedConfig(
        vocabulary=vocabulary, length=longest + 3 + beyond, shortest=shortest, longest=longest
    )
    ids, labels = draw_probe(config, seed, ROWS)
    assert set(ids.ravel()) <= set(range(vocabulary))
    for row, asked in zip(ids.tolist(), labels.tolist(), strict=True):
        size = asked.count(IGNORE)
        assert shortest <= size <= longest
        assert asked[:size] == [IGNORE] * size
        assert asked[size:-1] == row[size + 1 :]
        assert row[size:] == row[:-size]
        assert asked[-1] == row[len(row) % size]


@given(st.integers(4, 40), seeds)
def test_an_indirect_object_is_the_name_that_is_not_repeated(vocabulary: int, seed: int) -> None:
    ids, labels = draw_probe(IndirectObjectConfig(vocabulary=vocabulary), seed, ROWS)
    for (begin, first, second, again, ask), asked in zip(
        ids.tolist(), labels.tolist(), strict=True
    ):
        assert (begin, ask) == (BEGIN, ASK)
        assert {first, second} <= set(range(FIRST_NAME, vocabulary))
        assert first != second
        assert again in (first, second)
        assert asked == [IGNORE] * 4 + [first + second - again]


@given(st.integers(1, 4), st.integers(3, 12), st.integers(4, 20), seeds)
def test_the_id_after_a_trigger_is_the_one_before_it(
    triggers: int, chain: int, length: int, seed: int
) -> None:
    config = BigramBackcopyConfig(
        vocabulary=1 + triggers + chain, length=length, triggers=triggers, trigger_rate=0.5
    )
    ids, labels = draw_probe(config, seed, ROWS)
    assert (ids[:, 1:] == labels[:, :-1]).all()
    for row in np.column_stack([ids, labels[:, -1]]).tolist():
        assert row[0] == BEGIN
        assert min(row[1:]) > BEGIN
        assert row[1] > triggers
        places = [i for i, x in enumerate(row[:-1]) if 0 < x <= triggers]
        assert all(row[i + 1] == row[i - 1] > triggers for i in places)
    ids, labels = draw_probe_test(config, seed, ROWS)
    for row, asked in zip(ids.tolist(), labels.tolist(), strict=True):
        assert asked == [row[i - 1] if 0 < x <= triggers else IGNORE for i, x in enumerate(row)]


def test_ids_of_the_chain_follow_its_transitions() -> None:
    config = BigramBackcopyConfig(vocabulary=6, length=16, triggers=2)
    p = config.transitions
    assert p.sum(1) == pytest.approx(1)
    assert p[3:, 1:3] == pytest.approx(0.1)
    assert not p[0, :3].any()
    ids, labels = draw_probe(config, 0, 2000)
    for before in (0, 3, 4, 5):
        found = np.bincount(labels[ids == before], minlength=6)
        seen = p[before] > 0
        assert not found[~seen].any()
        assert chisquare(found[seen], p[before][seen] * found.sum()).pvalue > UNLIKELY
