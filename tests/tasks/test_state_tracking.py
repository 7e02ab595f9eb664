"""Parity and state tracking against their definitions, by plain loops."""

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from regard.data import IGNORE
from regard.tasks.probes import draw_probe, draw_probe_test
from regard.tasks.state_tracking import ParityConfig, StateTrackingConfig

seeds = st.integers(0, 2**32 - 1)


def parities(bits: list[int]) -> list[int]:
    return [sum(bits[: i + 1]) % 2 for i in range(len(bits))]


@given(st.integers(1, 12), st.integers(1, 12), seeds)
def test_parity_is_asked_at_each_position_and_tested_after_those_of_training(
    length: int, more: int, seed: int
) -> None:
    config = ParityConfig(length=length, test_length=length + more)
    ids, labels = draw_probe(config, seed, 5)
    assert ids.shape == (5, length)
    assert set(ids.flat) <= {0, 1}
    assert labels.tolist() == [parities(row) for row in ids.tolist()]
    ids, labels = draw_probe_test(config, seed, 5)
    assert ids.shape == (5, length + more)
    expected = [parities(row)[length:] for row in ids.tolist()]
    assert labels.tolist() == [[IGNORE] * length + row for row in expected]


def test_by_default_positions_41_to_256_are_scored() -> None:
    ids, _ = draw_probe(ParityConfig(), 0, 1)
    _, labels = draw_probe_test(ParityConfig(), 0, 1)
    assert ids.shape == (1, 40)
    assert np.flatnonzero(labels[0] != IGNORE).tolist() == list(range(40, 256))


def composed(numbers: list[int], items: int) -> list[int]:
    """The number of each product, by applying the permutations to each item, the last one first."""
    elements = list(permutations(range(items)))
    found = []
    for end in range(1, len(numbers) + 1):
        image = list(range(items))
        for number in reversed(numbers[:end]):
            image = [elements[number][i] for i in image]
        found.append(elements.index(tuple(image)))
    return found


@given(st.integers(2, 5), st.integers(1, 10), seeds)
def test_each_label_is_the_product_so_far(items: int, length: int, seed: int) -> None:
    ids, labels = draw_probe(StateTrackingConfig(items=items, length=length), seed, 3)
    assert labels.tolist() == [composed(row, items) for row in ids.tolist()]
