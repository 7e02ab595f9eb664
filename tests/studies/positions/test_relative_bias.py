"""The study `relative-bias`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import Softmax
from regard.positions import Sinusoidal
from regard.studies.finding import Verdict
from regard.studies.positions.position_vectors import (
    concatenated,
    pair_bias,
    relative_bias,
    sinusoidal_bias,
)
from regard.studies.tensors import normal


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


def test_the_verdict() -> None:
    assert relative_bias().verdict is Verdict.HOLDS
    assert relative_bias(length=3, heads=1, clip=100, d=2).verdict is Verdict.HOLDS


def test_the_numbers() -> None:
    measured = {number.name: number.measured for number in relative_bias().numbers}
    assert measured["parameters, (2(T − 1) + 1)m"] == 31 * 4
    assert measured["parameters, clipped, (2k + 1)m"] == 9 * 4
    assert measured["parameters of Shaw's vectors, 2(2k + 1)d"] == 2 * 9 * 8


def test_no_bias_equals_concatenation_if_scores_are_divided_by_the_root_of_the_doubled_width() -> (
    None
):
    """Weights of two heads with the same positions: the same bias would have to serve both."""
    assert relative_bias(scaled=True).verdict is Verdict.FAILS
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
