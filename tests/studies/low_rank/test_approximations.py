"""Approximations of attention: error and cost, the graph of blocks, the furthest vector."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import BigBird, Mask, Softmax
from regard.studies.low_rank.approximations import (
    EXACT,
    LENGTHS,
    MECHANISMS,
    Costs,
    blocks,
    by_chance,
    draw_sample,
    error,
    error_ratio,
    exponents,
    found_share,
    gap,
    graph,
    least_products,
    longest_path,
    pooled,
)
from regard.studies.tensors import normal
from tiny_studies import needs_every_measurement


@settings(max_examples=10)
@given(st.integers(0, 99), st.floats(0.1, 2), st.floats(0, 64))
def test_with_as_many_features_as_tokens_means_and_blocks_are_exact(
    seed: int, spread: float, reach: float
) -> None:
    samples = [draw_sample(96, spread, reach, (seed, 0))]
    assert error(pooled, 96, samples) < 1e-12
    assert error(blocks, 96 + 16, samples) < 1e-12
    for make in EXACT.values():
        assert error(make, 1, samples) < 1e-12


def test_linformers_rows_are_means() -> None:
    x = torch.randn(1, 1, 10, 3, generator=torch.Generator().manual_seed(0))
    rows = pooled(10, 4, 0).project_key @ x
    expected = [
        x[0, 0, part].mean(0) for part in (slice(3), slice(3, 5), slice(5, 8), slice(8, 10))
    ]
    torch.testing.assert_close(rows[0, 0], torch.stack(expected))


def test_bigbird_looks_at_as_many_keys_as_it_is_told() -> None:
    pattern = blocks(512, 128, 0).pattern(1, 512, causal=False, device=torch.device("cpu"))
    looked_at = pattern.to_dense(512, 512, torch.device("cpu"))[0, 0].sum(1)
    assert looked_at.median() == 128
    assert looked_at[:16].eq(512).all(), "the global block looks at all"


def test_growth_is_judged() -> None:
    def costs(operations: int, memory: int) -> Costs:
        return Costs([n**operations for n in LENGTHS], [], [n**memory for n in LENGTHS])

    right = {"softmax, written out": costs(2, 2), "softmax, fused": costs(2, 1)}
    right |= {name: costs(1, 1) for name in MECHANISMS}
    for name, each in right.items():
        wrong = {"softmax, written out": costs(1, 1)}.get(name, costs(2, 2))
        needs_every_measurement(exponents, (name, each), (name, wrong))


def test_an_error_that_does_not_fall_is_found() -> None:
    assert error_ratio("a", [0.4, 0.3, 0.2, 0.1]).holds
    assert not error_ratio("a", [0.4, 0.4, 0.4, 0.4]).holds


def test_linformer_is_far_off_where_tokens_have_nothing_in_common() -> None:
    errors = [error(pooled, 64, [draw_sample(256, 1.0, reach, (0, 0))]) for reach in (0.0, 32.0)]
    assert errors[0] > 0.8 > 0.2 > errors[1]


def test_samples_are_exact() -> None:
    states, values, exact = draw_sample(32, 1.0, 8.0, (0, 0))
    torch.testing.assert_close(exact, Softmax()(states, states, values))


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


@settings(max_examples=20)
@given(st.integers(2, 40), st.integers(2, 9), st.integers(0, 1000))
def test_full_attention_finds_the_furthest(n: int, d: int, seed: int) -> None:
    vectors = F.normalize(normal(seed, 2, 1, n, d), dim=-1)
    distances = torch.cdist(vectors, vectors).amax(-1)
    products = least_products(vectors, Mask())
    # ‖u − v‖² = 2 − 2u·v of vectors of length 1.
    torch.testing.assert_close(distances.square(), 2 - 2 * products)
    assert found_share(products, products) == 1
    assert found_share(products, products + 0.1) == 0


@settings(max_examples=20)
@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 1000))
def test_a_layer_shows_the_share_that_the_formula_says(count: int, random: int, seed: int) -> None:
    n = 8 * count
    kinds = {"window": 3, "random": random, "global_blocks": 1}
    blocks = BigBird(block_size=8, max_keys=n, seed=seed, **kinds)
    pattern = blocks.pattern(1, n, causal=False, device=torch.device("cpu"))
    dense = pattern.to_dense(n, n, torch.device("cpu"))[0, 0]
    others = int(dense.sum()) - n
    assert by_chance(n, random, 1) == pytest.approx(others / (n * (n - 1)), rel=1e-12)


def test_more_layers_show_more() -> None:
    shares = [by_chance(256, 3, layers) for layers in (1, 2, 4, 1000)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1, abs=1e-12)
    assert by_chance(256, 0, 1000) == by_chance(256, 0, 1), "without random blocks none does"
