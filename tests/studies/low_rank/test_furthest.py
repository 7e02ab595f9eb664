"""The task that needs full attention."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import BigBird, Mask
from regard.studies.finding import Verdict
from regard.studies.low_rank.approximations import (
    by_chance,
    found_share,
    furthest,
    least_products,
    unit_vectors,
)


@settings(max_examples=20)
@given(st.integers(2, 40), st.integers(2, 9), st.integers(0, 1000))
def test_full_attention_finds_the_furthest(n: int, d: int, seed: int) -> None:
    vectors = unit_vectors(n, d, 2, seed)
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


def test_the_verdict() -> None:
    assert furthest().verdict is Verdict.HOLDS


def test_the_verdict_where_bigbird_sees_all() -> None:
    found = furthest(n=64, random=8)
    assert found.verdict is Verdict.FAILS
    assert {number.measured for number in found.numbers} == {1}
