"""Attention to keys that queries choose."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.attention import chosen_keys


@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 12), st.booleans())
def test_the_largest_scores_are_those_of_a_sorted_row(
    seed: int, groups: int, k: int, equal: bool
) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, groups * chosen_keys.GROUP, generator=rng)
    scores = scores.round() if equal else scores
    values, keys = chosen_keys.largest(scores, k)
    torch.testing.assert_close(values, scores.topk(k).values, rtol=0, atol=0)
    torch.testing.assert_close(scores.gather(1, keys), values, rtol=0, atol=0)
    assert all(len(set(row)) == k for row in keys.tolist())
