"""Rotary positions: turns of the complex plane, of which only the distance is seen."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.positions import Rotary, frequencies, rotate

LENGTH = 50
checked = settings(deadline=None, derandomize=True, max_examples=50)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)

widths = st.integers(1, 4).map(lambda half: 2 * half)
bases = st.sampled_from([10.0, 10_000.0])
seeds = st.integers(0, 2**32 - 1)


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


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
    x = normal(0, 1, 1, 2, 6)
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
    x = normal(seed, 2, 3, 3, d).to(dtype)
    out = turned(x, positions, base)
    assert out.dtype == dtype
    error = (out.double() - turned_complex(x, positions, base)).abs().max()
    # Cosine and sine, two products and their sum are rounded; float64 angles up to 50 carry
    # 50 roundings of their own.
    eps = torch.finfo(dtype).eps
    bound = 4 * eps + LENGTH * torch.finfo(torch.float64).eps
    assert float(error) <= bound * float(x.double().abs().max())


@checked
@given(seed=seeds, d=widths, base=bases, position=st.integers(0, LENGTH - 1))
def test_turning_keeps_the_norm(seed: int, d: int, base: float, position: int) -> None:
    x = normal(seed, 2, 2, 1, d)
    norm = turned(x, torch.tensor([[position]]), base).norm(dim=-1)
    # cos² + sin² is 1 up to a few roundings.
    assert torch.allclose(norm, x.norm(dim=-1), rtol=8 * torch.finfo(x.dtype).eps, atol=0)


@checked
@given(
    seed=seeds,
    d=widths,
    base=bases,
    places=st.tuples(st.integers(0, 24), st.integers(0, 24)),
    shift=st.integers(0, 25),
)
def test_products_depend_on_the_distance_alone(
    seed: int, d: int, base: float, places: tuple[int, int], shift: int
) -> None:
    query, key = normal(seed, 2, 1, 1, 1, d)

    def product(moved_by: int) -> Tensor:
        i, j = (torch.tensor([[place + moved_by]]) for place in places)
        return (turned(query, i, base) * turned(key, j, base)).sum()

    # Angles up to 50, off by as many roundings, turn two vectors.
    bound = 4 * LENGTH * torch.finfo(torch.float64).eps * float(query.norm() * key.norm())
    assert abs(float(product(shift) - product(0))) <= bound


def test_products_change_with_the_distance() -> None:
    query, key = torch.ones(2, 1, 1, 1, 4, dtype=torch.float64)
    products = [float((query * turned(key, torch.tensor([[j]]), 10_000.0)).sum()) for j in range(4)]
    assert products == sorted(products, reverse=True)
    assert products[0] - products[3] > 1


@checked
@given(seed=seeds, d=widths)
def test_position_zero_changes_nothing(seed: int, d: int) -> None:
    x = normal(seed, 1, 2, 1, d)
    # Exact: x · 1 + y · 0.
    assert torch.equal(turned(x, torch.tensor([[0]]), 10_000.0), x)


def test_the_base_sets_the_slowest_turn() -> None:
    x = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64).view(1, 1, 1, 4)
    out = turned(x, torch.tensor([[7]]), 100.0)
    angle = torch.tensor(7 * 100.0**-0.5, dtype=torch.float64)
    expected = torch.stack([angle * 0, angle.cos(), angle * 0, angle.sin()])
    # One rounding each of angle, cosine and product.
    assert torch.allclose(out.flatten(), expected, rtol=0, atol=4 * torch.finfo(x.dtype).eps)


def test_gradients_turn_back() -> None:
    """A rotation's gradient is the rotation by the opposite angle."""
    x = normal(0, 1, 1, 3, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: turned(x, torch.tensor([[0, 5, 9]]), 10.0), [x])


def test_the_tables_are_not_saved_with_the_weights() -> None:
    assert not Rotary(frequencies(4, 10.0), length=8).state_dict()


@pytest.mark.parametrize("d", [1, 3])
def test_an_odd_width_is_refused(d: int) -> None:
    with pytest.raises(ValueError, match=f"d must be even and positive, not {d}"):
        frequencies(d, 10_000.0)
