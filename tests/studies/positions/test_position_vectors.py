"""Positions that are added, as a bias, and shifted."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import Softmax
from regard.positions import Sinusoidal
from regard.studies.positions.position_vectors import (
    concatenated,
    cross_terms,
    draw_pairs,
    pair_bias,
    score_errors,
    shift_error,
    sinusoidal_bias,
    wavelengths,
)
from regard.studies.tensors import normal


@settings(max_examples=20)
@given(st.integers(1, 40), st.floats(0.1, 2), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_the_terms_are_those_of_any_draw(half: int, sigma: float, steps: int, seed: int) -> None:
    pairs = draw_pairs(5, 2 * half, sigma, steps, torch.Generator().manual_seed(seed))
    assert max(score_errors(pairs)) < 1e-9


def test_cross_terms_are_what_concatenation_lacks() -> None:
    x1, p1, x2, p2 = pairs = draw_pairs(6, 8, 1.0, 2, torch.Generator().manual_seed(0))
    whole = ((x1 + p1) * (x2 + p2)).sum(-1)
    beside = (torch.cat([x1, p1], -1) * torch.cat([x2, p2], -1)).sum(-1)
    torch.testing.assert_close(whole - beside, cross_terms(pairs))


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 20))
def test_a_bias_does_what_vectors_side_by_side_do(length: int, heads: int, half: int) -> None:
    words, positions = _drawn(heads, length, 2 * half)
    weights = Softmax(scaled=False).weights(words[0], words[1], bias=pair_bias(positions))
    beside = Softmax(scaled=False).weights(*concatenated(words, positions))
    torch.testing.assert_close(weights, beside)


def _drawn(heads: int, length: int, d: int) -> tuple[Tensor, Tensor]:
    """Words and positions."""
    drawn = normal(0, 5, 1, heads, length, d)
    return drawn[:3], drawn[3:]


def test_no_bias_equals_concatenation_if_scores_are_divided_by_the_root_of_the_doubled_width() -> (
    None
):
    """Weights of two heads with the same positions: the same bias would have to serve both."""
    (words, positions), d = _drawn(1, 6, 8), 8
    turned = torch.cat([words[:1].flip(3), words[1:]])

    def bias_up_to_a_constant(root: float) -> list[Tensor]:
        found = []
        for each in (words, turned):
            query, key = concatenated(each, positions)
            weights = Softmax(scaled=False).weights(query / root, key)
            bias = weights.log() - each[0] @ each[1].mT / d**0.5
            found.append(bias - bias[..., :1])
        return found

    torch.testing.assert_close(*bias_up_to_a_constant(d**0.5))
    first, second = bias_up_to_a_constant((2 * d) ** 0.5)
    assert (first - second).abs().max() > 0.1


def test_sinusoids_multiply_to_a_number_for_each_distance() -> None:
    places = torch.arange(30)
    vectors = Sinusoidal(length=30, d=12).vectors
    bias = sinusoidal_bias(30, 2, 12).dense(places, places)
    torch.testing.assert_close(bias, (vectors @ vectors.mT).expand(2, -1, -1))


def test_the_sum_as_printed_is_a_multiple_of_the_own_value() -> None:
    words, positions = _drawn(2, 6, 4)
    free = pair_bias(positions)
    query, key, value = words
    as_printed = (query @ key.mT + free.table).exp().sum(-1, keepdim=True) * value
    multiple = as_printed / value
    torch.testing.assert_close(multiple, multiple[..., :1].expand_as(multiple))
    right = Softmax(scaled=False)(*words, bias=free)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(as_printed, right)


@settings(max_examples=30)
@given(st.integers(2, 256))
def test_the_spans_are_those_of_the_formula(half: int) -> None:
    d = 2 * half
    for first in (0, 1):
        formula = [2 * math.pi * 10_000 ** (2 * (first + i) / d) for i in range(half)]
        assert wavelengths(first, d) == pytest.approx(formula, rel=1e-9)


@settings(max_examples=20)
@given(st.integers(2, 64), st.integers(1, 1000), st.integers(2, 1000))
def test_one_matrix_moves_every_position(half: int, steps: int, length: int) -> None:
    vectors = Sinusoidal(length=length + steps, d=2 * half).vectors
    # What float64 rounds off an angle of up to length + steps.
    assert shift_error(vectors, steps) <= 4 * 2**-52 * (length + steps)
