"""Attention to keys, and to blocks of keys, that queries choose."""

from math import inf

import pytest
import torch
from attention_cases import thorough
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import chosen_blocks, chosen_keys


def drawn(seed: int, rows: int, n: int, size: int) -> list[Tensor]:
    """Queries, keys and values; own and other blocks of each query, and those that are kept."""
    rng = torch.Generator().manual_seed(seed)
    vectors = [torch.randn(rows, n, 5, generator=rng, dtype=torch.float64) for _ in range(3)]
    own = torch.arange(n) // size
    others = torch.rand(rows, n, -(-n // size), generator=rng).argsort(-1)[..., :3]
    choices = torch.cat([own.expand(rows, n)[..., None], others], -1)
    kept = torch.cat([torch.ones(rows, n, 1, dtype=torch.bool), others < own[:, None]], -1)
    return [*vectors, choices, kept]


def dense(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    """Attention from all scores."""
    return (query @ key.mT).masked_fill(~allowed, -inf).softmax(-1) @ value


def allowed(choices: Tensor, kept: Tensor, size: int) -> Tensor:
    """The keys of the kept blocks, up to the query."""
    rows, n, _ = choices.shape
    blocks = torch.zeros(rows, n, -(-n // size), dtype=torch.bool)
    for row, query, choice in kept.nonzero().tolist():
        blocks[row, query, choices[row, query, choice]] = True
    keys = blocks.repeat_interleave(size, -1)[..., :n]
    return keys & torch.ones(n, n, dtype=torch.bool).tril()


@thorough
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 3),
    n=st.integers(1, 90),
    size=st.integers(1, 40),
    scores=st.sampled_from([1, 64, 1 << 18]),
)
def test_output_and_gradients_are_those_of_all_scores(
    seed: int, rows: int, n: int, size: int, scores: int
) -> None:
    query, key, value, choices, kept = drawn(seed, rows, n, size)
    inputs = [x.requires_grad_() for x in (query, key, value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen_blocks, "SCORES", scores)
        found = chosen_blocks.attend(query, key, value, choices, kept, size=size)
        expected = dense(query, key, value, allowed(choices, kept, size))
        torch.testing.assert_close(found, expected)
        grad = torch.cos(torch.arange(found.numel())).view_as(found).double()
        gradients = torch.autograd.grad(found, inputs, grad)
    for one, other in zip(gradients, torch.autograd.grad(expected, inputs, grad), strict=True):
        torch.testing.assert_close(one, other)


def test_bfloat16_is_as_close_as_its_rounding() -> None:
    *vectors, choices, kept = drawn(1, 2, 50, 4)
    query, key, value = (x.bfloat16() for x in vectors)
    found = chosen_blocks.attend(query, key, value, choices, kept, size=4)
    assert found.dtype == torch.bfloat16
    expected = dense(query.double(), key.double(), value.double(), allowed(choices, kept, 4))
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=2**-7)


# Keys


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
