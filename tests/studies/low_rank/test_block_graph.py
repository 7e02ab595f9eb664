"""The graph of blocks."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.low_rank.approximations import block_graph, gap, graph, longest_path


@settings(max_examples=20)
@given(st.integers(3, 40), st.integers(1, 4))
def test_a_window_is_a_chain(n: int, side: int) -> None:
    assert longest_path(graph(n, side, 0, 0, 0)) == math.ceil((n - 1) / side)


@given(st.integers(2, 30))
def test_gaps_that_are_known(n: int) -> None:
    assert gap(np.ones((n, n), dtype=bool)) == pytest.approx(1, abs=1e-12), "everyone sees everyone"
    apart = np.kron(np.eye(2), np.ones((n, n))).astype(bool)
    assert gap(apart) == pytest.approx(0, abs=1e-12), "two parts that never meet"
    # A ring with loops: eigenvalues (1 + 2 cos(2πj/m))/3.
    m = n + 2
    ring = np.eye(m, dtype=bool) | np.eye(m, k=1, dtype=bool) | np.eye(m, k=1 - m, dtype=bool)
    assert gap(ring) == pytest.approx(2 / 3 * (1 - math.cos(2 * math.pi / m)), abs=1e-12)


@settings(max_examples=20)
@given(st.integers(8, 40), st.integers(0, 3), st.integers(1, 3), st.integers(0, 99))
def test_with_a_global_block_none_is_further_than_two(
    n: int, random: int, global_blocks: int, seed: int
) -> None:
    assert longest_path(graph(n, 1, random, global_blocks, seed)) <= 2


def test_the_numbers() -> None:
    found = {number.name: number.measured for number in block_graph(n=100, side=2).numbers}
    assert found["longest path, window"] == 50
    assert found["longest path, with a global block"] == 2


def test_the_verdict() -> None:
    assert block_graph().verdict is Verdict.HOLDS


def test_the_verdict_without_one_kind_of_blocks() -> None:
    assert block_graph(random=0).verdict is Verdict.FAILS
    assert block_graph(global_blocks=0).verdict is Verdict.FAILS
