"""Positions on the input: learned ones, sines and cosines, unit vectors."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.positions import Learned, OneHot, Sinusoidal, shift_matrix

LENGTH = 200
few = settings(max_examples=30)

widths = st.integers(1, 8).map(lambda half: 2 * half)
bases = st.sampled_from([10.0, 10_000.0])
times = st.integers(0, LENGTH - 1)

FIXED: dict[str, Callable[[], nn.Module]] = {
    "sinusoidal": lambda: Sinusoidal(length=4, d=6),
    "one-hot": lambda: OneHot(length=4, d=6),
}
each_fixed = pytest.mark.parametrize("make", FIXED.values(), ids=FIXED.keys())
each = pytest.mark.parametrize(
    "make", [*FIXED.values(), lambda: Learned(length=4, d=6)], ids=[*FIXED.keys(), "learned"]
)


def test_each_row_gets_the_vectors_of_its_own_positions() -> None:
    learned = Learned(length=4, d=2)
    with torch.no_grad():
        learned.vectors.copy_(torch.arange(8.0).view(4, 2))
    out = learned(torch.tensor([[0, 3], [1, 1]]))
    assert out.tolist() == [[[0.0, 1.0], [6.0, 7.0]], [[2.0, 3.0], [2.0, 3.0]]]


@each
def test_a_position_past_the_end_is_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(IndexError):
        make()(torch.tensor([[4]]))


@each_fixed
def test_fixed_positions_are_neither_learned_nor_saved(make: Callable[[], nn.Module]) -> None:
    fixed = make()
    assert not list(fixed.parameters())
    assert not fixed.state_dict()


@each
def test_the_default_precision_and_any_rows_come_out(make: Callable[[], nn.Module]) -> None:
    out = make()(torch.tensor([[0, 3], [1, 1]]))
    assert out.shape == (2, 2, 6)
    assert out.dtype == torch.get_default_dtype()
    assert torch.equal(out[0], make()(torch.tensor([0, 3])))


@few
@given(t=times, d=widths, base=bases)
def test_sinusoids_are_those_of_the_paper(t: int, d: int, base: float) -> None:
    vectors = Sinusoidal(length=LENGTH, d=d, base=base).vectors
    assert vectors.dtype == torch.float64
    for k in range(d // 2):
        angle = t / base ** (2 * k / d)
        # The angle carries a few roundings of its own.
        bound = 4 * (1 + angle) * torch.finfo(torch.float64).eps
        assert abs(float(vectors[t, 2 * k]) - math.sin(angle)) <= bound
        assert abs(float(vectors[t, 2 * k + 1]) - math.cos(angle)) <= bound


@few
@given(t=times, later=times, d=widths, base=bases)
def test_a_shift_is_a_matrix_that_is_the_same_everywhere(
    t: int, later: int, d: int, base: float
) -> None:
    vectors = Sinusoidal(length=LENGTH, d=d, base=base).vectors
    moved = shift_matrix(d, later - t, base=base) @ vectors[t]
    # Three angles up to LENGTH carry as many roundings, and enter two products.
    bound = 4 * LENGTH * torch.finfo(torch.float64).eps
    assert float((moved - vectors[later]).abs().max()) <= bound


@few
@given(length=st.integers(1, 8), more=st.integers(0, 3))
def test_one_hot_positions_are_unit_vectors(length: int, more: int) -> None:
    out = OneHot(length=length, d=length + more)(torch.arange(length))
    expected = [
        [float(t == coordinate) for coordinate in range(length + more)] for t in range(length)
    ]
    assert out.tolist() == expected


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="d must be even and positive, not 5"):
        Sinusoidal(length=4, d=5)
    with pytest.raises(ValueError, match="d must be even and positive, not 5"):
        shift_matrix(5)


def test_more_positions_than_unit_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="4 positions need 4 unit vectors, and d = 3 has 3"):
        OneHot(length=4, d=3)
