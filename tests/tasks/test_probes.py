"""Each probe against its definition, read off the rows one by one."""

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import permutations
from typing import NamedTuple, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from regard.data import IGNORE
from regard.tasks.circuit_probes import IndirectObjectConfig, RepeatedConfig
from regard.tasks.mad import CompressionConfig
from regard.tasks.probes import (
    FIRST_TOKEN,
    NOISE,
    SEPARATOR,
    CopyConfig,
    InductionConfig,
    MqarConfig,
    NeedleConfig,
    ProbeConfig,
    ReverseConfig,
    SelectiveCopyConfig,
    SortConfig,
    draw_probe,
    draw_probe_test,
)
from regard.tasks.state_tracking import StateTrackingConfig

UNLIKELY = 1e-3
"""A fixed seed decides each draw: a test that passes once passes always."""
ROWS = 5
seeds = st.integers(0, 2**32 - 1)
tokens_of = {"vocabulary": st.integers(4, 40), "length": st.integers(1, 12)}


@st.composite
def mqar_configs(draw: st.DrawFn) -> MqarConfig:
    pairs = draw(st.integers(1, 6))
    return MqarConfig(
        pairs=pairs,
        length=2 * draw(st.integers(2 * pairs, 2 * pairs + 10)),
        vocabulary=draw(st.integers(2 * (pairs + 1), 40)),
        power=draw(st.floats(0.01, 1)),
    )


class ProbeRow(NamedTuple):
    """Ids, and the label of each position."""

    ids: tuple[int, ...]
    labels: tuple[int, ...]


def make_probe(config: ProbeConfig, seed: int, rows: int) -> list[ProbeRow]:
    """The rows of a probe, one by one."""
    ids, labels = draw_probe(config, seed, rows)
    pairs = zip(ids.tolist(), labels.tolist(), strict=True)
    return [ProbeRow(tuple(row), tuple(targets)) for row, targets in pairs]


def targets(row: ProbeRow) -> dict[int, int]:
    """Position → label, where there is a loss."""
    return {i: label for i, label in enumerate(row.labels) if label != IGNORE}


@given(mqar_configs(), seeds)
def test_mqar_asks_for_the_value_of_each_key_once(config: MqarConfig, seed: int) -> None:
    context, half = 2 * config.pairs, config.vocabulary // 2
    for row in make_probe(config, seed, ROWS):
        assert len(row.ids) == len(row.labels) == config.length
        assert set(row.ids) <= set(range(config.vocabulary))
        keys, values = row.ids[0:context:2], row.ids[1:context:2]
        assert len(set(keys)) == len(set(values)) == config.pairs
        assert set(keys) <= set(range(1, half))
        assert set(values) <= set(range(half, config.vocabulary))
        value_of = dict(zip(keys, values, strict=True))
        asked = targets(row)
        assert Counter(row.ids[i] for i in asked) == Counter(keys)
        assert all(i >= context and i % 2 == 0 for i in asked)
        assert all(value_of[row.ids[i]] == label for i, label in asked.items())


def gaps_of(row: ProbeRow, pairs: int) -> tuple[int, ...]:
    """Of each key in turn, the even steps from the last pair to its query."""
    place = {row.ids[i]: i for i in targets(row)}
    return tuple((place[key] - 2 * pairs) // 2 for key in row.ids[0 : 2 * pairs : 2])


@pytest.mark.parametrize("power", [0.01, 0.5, 1.0])
def test_the_gaps_of_mqar_follow_the_power_law_without_replacement(power: float) -> None:
    config = MqarConfig(vocabulary=16, length=14, pairs=2, power=power)
    n = 20_000
    counts = Counter(gaps_of(row, 2) for row in make_probe(config, 0, n))
    weights = power * np.arange(1.0, 6) ** (power - 1)
    p = weights / weights.sum()
    expected = {(i, j): n * p[i] * p[j] / (1 - p[i]) for i, j in permutations(range(5), 2)}
    assert set(counts) == set(expected)
    observed = [counts[gaps] for gaps in expected]
    assert chisquare(observed, list(expected.values())).pvalue > UNLIKELY


@pytest.mark.parametrize(
    ("kind", "answer"),
    [(CopyConfig, list), (SortConfig, sorted), (ReverseConfig, lambda tokens: tokens[::-1])],
    ids=["copy", "sort", "reverse"],
)
@given(data=st.data(), seed=seeds)
def test_tokens_are_followed_by_a_separator_and_their_answer(
    kind: Callable[..., ProbeConfig],
    answer: Callable[[list[int]], list[int]],
    data: st.DataObject,
    seed: int,
) -> None:
    vocabulary, n = (data.draw(strategy) for strategy in tokens_of.values())
    for row in make_probe(kind(vocabulary=vocabulary, length=n), seed, ROWS):
        tokens = list(row.ids[:n])
        assert set(tokens) <= set(range(FIRST_TOKEN, vocabulary))
        assert row.ids[n] == SEPARATOR
        assert_answered(row, n, answer(tokens))


def assert_answered(row: ProbeRow, n: int, answer: list[int]) -> None:
    """Behind n ids and a separator, each id is the label of the one before it."""
    assert len(row.ids) == len(row.labels)
    assert list(targets(row).items()) == list(enumerate(answer, start=n))
    assert list(row.ids[n + 1 :]) == answer[:-1]


@given(st.builds(SelectiveCopyConfig, **tokens_of, noise=st.integers(0, 12)), seeds)
def test_selective_copy_passes_over_noise(config: SelectiveCopyConfig, seed: int) -> None:
    n = config.length + config.noise
    for row in make_probe(config, seed, ROWS):
        tokens = [token for token in row.ids[:n] if token != NOISE]
        assert len(tokens) == config.length
        assert set(tokens) <= set(range(FIRST_TOKEN, config.vocabulary))
        assert row.ids[n] == SEPARATOR
        assert_answered(row, n, tokens)


@given(st.integers(4, 40), st.integers(3, 20), seeds)
def test_induction_asks_for_what_followed_the_last_id_before(
    vocabulary: int, length: int, seed: int
) -> None:
    config = InductionConfig(vocabulary=vocabulary, length=length)
    for row in make_probe(config, seed, ROWS):
        assert len(row.ids) == length
        assert set(row.ids) <= set(range(FIRST_TOKEN, vocabulary))
        (before, last) = [i for i, token in enumerate(row.ids) if token == row.ids[-1]]
        assert last == length - 1
        assert targets(row) == {last: row.ids[before + 1]}


@given(st.integers(4, 40), st.integers(3, 20), st.data(), seeds)
def test_a_needle_is_anywhere_in_training_and_at_a_distance_in_the_test(
    vocabulary: int, length: int, data: st.DataObject, seed: int
) -> None:
    distance = data.draw(st.integers(1, length - 2))
    tested = data.draw(st.integers(distance + 2, 60))
    config = NeedleConfig(
        vocabulary=vocabulary, length=length, test_length=tested, distance=distance
    )
    for draw, n, place in (
        (draw_probe, length, None),
        (draw_probe_test, tested, tested - 1 - distance),
    ):
        ids, labels = draw(config, seed, ROWS)
        for row, asked in zip(ids.tolist(), labels.tolist(), strict=True):
            assert len(row) == n
            marker, question = [i for i, token in enumerate(row) if token == SEPARATOR]
            assert question == n - 1
            assert set(row) - {SEPARATOR} <= set(range(FIRST_TOKEN, vocabulary))
            assert asked == [IGNORE] * (n - 1) + [row[marker + 1]]
            assert place in (None, marker + 1)


# Of all probes


UNIFORM: dict[str, tuple[ProbeConfig, Callable[[ProbeRow], Hashable], int]] = {
    "mqar: keys": (MqarConfig(vocabulary=12, length=10, pairs=2), lambda row: row.ids[0:4:2], 20),
    "mqar: values": (MqarConfig(vocabulary=12, length=10, pairs=2), lambda row: row.ids[1:4:2], 30),
    "mqar: others": (MqarConfig(vocabulary=12, length=10, pairs=2), lambda row: row.ids[5], 12),
    "selective copy: places of noise": (
        SelectiveCopyConfig(length=2, noise=3),
        lambda row: tuple(token == NOISE for token in row.ids[:5]),
        10,
    ),
    "induction: place, trigger and answer": (
        InductionConfig(vocabulary=6, length=6),
        lambda row: (row.ids.index(row.ids[-1]), row.ids[-1], row.labels[-1]),
        4 * 4 * 3,
    ),
    "needle: place": (NeedleConfig(length=6), lambda row: row.ids.index(SEPARATOR), 4),
    "permutations": (StateTrackingConfig(items=3, length=2), lambda row: row.ids, 6 * 6),
    "compression": (CompressionConfig(), lambda row: row.ids[0], 15),
    "repeated: length of the segment": (
        RepeatedConfig(length=8, shortest=2, longest=5),
        lambda row: row.labels.count(IGNORE),
        4,
    ),
    "indirect object: names and their order": (
        IndirectObjectConfig(vocabulary=5),
        lambda row: row.ids[1:4],
        3 * 2 * 2,
    ),
}
"""Probe, outcome of a row, and the number of outcomes, all equally likely."""


@pytest.mark.parametrize(("config", "outcome", "n_outcomes"), UNIFORM.values(), ids=UNIFORM)
def test_draws_are_uniform(
    config: ProbeConfig, outcome: Callable[[ProbeRow], Hashable], n_outcomes: int
) -> None:
    counts = Counter(map(outcome, make_probe(config, 0, 10_000)))
    assert len(counts) == n_outcomes
    assert chisquare(list(counts.values())).pvalue > UNLIKELY


PROBES: list[ProbeConfig] = [
    kind(vocabulary=2000) if kind is IndirectObjectConfig else kind()
    for kind in get_args(ProbeConfig)
]


def test_the_seed_decides_the_rows() -> None:
    for config in PROBES:
        assert make_probe(config, 0, 20) == make_probe(config, 0, 20)
        assert not set(make_probe(config, 0, 20)) & set(make_probe(config, 1, 20))
        assert make_probe(config, 0, 0) == []


def test_rows_of_one_probe_are_no_rows_of_another() -> None:
    """Each kind draws for itself: copy and reverse have other tokens at the same seed."""
    for config in PROBES:
        questions = [
            {row.ids[:8] for row in make_probe(other, 0, 20)} for other in PROBES if other != config
        ]
        assert not {row.ids[:8] for row in make_probe(config, 0, 20)} & set().union(*questions)
