"""Rotary positions: turns of the complex plane, of which only the distance is seen."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.positions import DynamicRotary, Rotary, frequencies, rotate
from tiny_recurrent import normal

LENGTH = 50
checked = settings(deadline=None, derandomize=True, max_examples=50)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)

widths = st.integers(1, 4).map(lambda half: 2 * half)
bases = st.sampled_from([10.0, 10_000.0])
seeds = st.integers(0, 2**32 - 1)


def turned(x: Tensor, positions: Tensor, base: float) -> Tensor:
    rotary = Rotary(frequencies(x.shape[-1], base), length=LENGTH)
    return rotate(x, rotary(positions, x.dtype))


def turned_complex(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """(x_i + x_{i + d/2}·√-1) · exp(√-1 · position · base^(-2i/d)), in float64."""
    half = x.shape[-1] // 2
    numbers = torch.complex(x[..., :half].double(), x[..., half:].double())
    frequencies = torch.tensor([base ** (-i / half) for i in range(half)], dtype=torch.float64)
    angles = positions[:, None, :, None] * frequencies
    product = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([product.real, product.imag], dim=-1)


@DTYPES
def test_any_position_has_a_rotation_as_those_of_the_table(dtype: torch.dtype) -> None:
    rotary, positions = Rotary(frequencies(6, 10.0), length=LENGTH), torch.arange(LENGTH)[None]
    table, computed = rotary(positions, dtype), rotary.at(positions.double(), dtype)
    for one, other in zip(table, computed, strict=True):
        assert torch.equal(one, other)
    x = normal(1, 1, 2, 6)
    there, back = (rotary.at(sign * positions[:, 3:5].double(), x.dtype) for sign in (1, -1))
    torch.testing.assert_close(rotate(rotate(x, there), back), x)


@DTYPES
@checked
@given(seed=seeds, d=widths, base=bases, data=st.data())
def test_it_is_a_product_of_complex_numbers_with_positions_for_each_row(
    seed: int, d: int, base: float, data: st.DataObject, dtype: torch.dtype
) -> None:
    rows = data.draw(st.sampled_from([1, 2]))
    places = st.lists(st.integers(0, LENGTH - 1), min_size=3, max_size=3)
    positions = torch.tensor(data.draw(st.lists(places, min_size=rows, max_size=rows)))
    x = normal(2, 3, 3, d, seed=seed).to(dtype)
    out = turned(x, positions, base)
    assert out.dtype == dtype
    error = (out.double() - turned_complex(x, positions, base)).abs().max()
    # Cosine and sine, two products and their sum are rounded; float64 angles up to 50 carry
    # 50 roundings of their own.
    eps = torch.finfo(dtype).eps
    bound = 4 * eps + LENGTH * torch.finfo(torch.float64).eps
    assert float(error) <= bound * float(x.double().abs().max())


def test_the_tables_are_not_saved_with_the_weights() -> None:
    assert not Rotary(frequencies(4, 10.0), length=8).state_dict()


@pytest.mark.parametrize("d", [1, 3])
def test_an_odd_width_is_refused(d: int) -> None:
    with pytest.raises(ValueError, match=f"d must be even and positive, not {d}"):
        frequencies(d, 10_000.0)


def test_dynamic_scaling_of_a_row_is_that_of_the_row_alone() -> None:
    rotary = DynamicRotary(d=8, base=1e4, factor=4.0, original_length=4)
    rows = torch.tensor([[0, 1, 2, 0, 0, 0], [0, 1, 2, 3, 4, 5]])
    for place in 0, 1:
        alone = rotary(rows[[place]], torch.float32)
        for together, one in zip(rotary(rows, torch.float32), alone, strict=True):
            assert torch.equal(together[[place]], one)
