"""What is drawn is fair, and the same for the same seed and purpose."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from regard.tasks.rng import between, choice, generator, index, sample, shuffled

UNLIKELY = 1e-3
"""A fixed seed decides each draw: a test that passes once passes always."""


@given(st.lists(st.integers()), st.integers(0, 12), st.integers())
def test_a_shuffle_keeps_all_and_a_sample_keeps_none_twice(
    items: list[int], k: int, seed: int
) -> None:
    before = list(items)
    assert Counter(shuffled(Random(seed), items)) == Counter(items)
    chosen = sample(Random(seed), items, k)
    assert len(chosen) == min(k, len(items))
    assert Counter(chosen) <= Counter(items)
    assert items == before


@pytest.mark.parametrize(
    ("make", "outcomes"),
    [
        (lambda draw: index(draw, 5), range(5)),
        (lambda draw: between(draw, -1, 3), range(-1, 4)),
        (lambda draw: choice(draw, "abc"), "abc"),
        (lambda draw: tuple(shuffled(draw, "abc")), permutations("abc")),
        (lambda draw: tuple(sample(draw, "abcd", 2)), permutations("abcd", 2)),
    ],
    ids=["index", "between", "choice", "shuffled", "sample"],
)
def test_all_outcomes_are_equally_likely(
    make: Callable[[Random], object], outcomes: list[object]
) -> None:
    draw = generator(0, "fair")
    counts = Counter(make(draw) for _ in range(6000))
    expected = list(outcomes)
    assert set(counts) == set(expected)
    assert chisquare([counts[outcome] for outcome in expected]).pvalue > UNLIKELY


def test_every_seed_and_purpose_has_a_generator_of_its_own() -> None:
    assert generator(1, 2, "a").random() == generator(1, 2, "a").random()
    draws = [generator(1, 2, "a"), generator(2, 1, "a"), generator(12, "a"), generator(1, 2, "b")]
    assert len({draw.random() for draw in draws}) == len(draws)
