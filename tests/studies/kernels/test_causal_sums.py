"""The study causal-sums."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import KernelAttention
from regard.studies.kernels.causal_sums import (
    MAPS,
    Map,
    by_matrix,
    causal_sums,
    in_chunks,
    rounding,
    token_by_token,
)
from regard.studies.tensors import normal
from tiny_studies import broken, measured


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(MAPS)), st.integers(2, 8), st.integers(1, 40), st.integers(1, 50))
def test_all_ways_are_the_sums_of_the_formula(features: Map, d: int, n: int, chunk: int) -> None:
    row = normal(n, 3, 1, 1, n, d)
    attend = KernelAttention(MAPS[features](d), chunk=chunk)
    (query, _), (key, scale) = (attend.features(x[0, 0]) for x in row[:2])
    key = key * (scale - scale.max()).exp()[:, None]  # attention is a ratio: a factor cancels
    sums = (key[:, :, None] * row[2, 0, 0][:, None, :]).cumsum(0)
    numerators, normalizers = (
        torch.einsum("im,ime->ie", query, sums),
        (query * key.cumsum(0)).sum(1),
    )
    expected = numerators / normalizers[:, None]
    for way in (by_matrix, in_chunks, token_by_token):
        off = (way(attend, row)[0, 0] - expected).abs().max()
        assert off <= 10 * rounding(attend, row)


@pytest.mark.parametrize("features", sorted(MAPS))
def test_states_have_the_sizes_of_the_formula(features: Map) -> None:
    found = causal_sums(features=features, d=4, n=50, doublings=1)
    assert broken(found.numbers) == []
    numbers = measured(found)
    # S is of m features by 4 values, and Z of m.
    m = MAPS[features](4).size(4)
    directions = MAPS[features](4).operations(4)
    # A step adds to them and reads them; and finds the features of a query and a key.
    assert numbers["operations of a step after 1024 tokens"] == 2 * (2 * m * 5 + directions)
    # There are a maximum and a length of 8 bytes each, too.
    assert numbers["bytes of S and Z after 1024 tokens"] == (m * 5 + 2) * 8
    assert numbers["bytes of keys and values after 1024 tokens"] >= 1024 * 2 * 4 * 8


@pytest.mark.parametrize("seed", [47, 59, 78, 93, 116])
def test_terms_that_cancel_are_in_the_bound(seed: int) -> None:
    row, attend = normal(seed, 3, 1, 1, 2, 2), KernelAttention(MAPS["polynomial"](2))
    off = (token_by_token(attend, row) - by_matrix(attend, row)).abs().max()
    assert off <= rounding(attend, row)
