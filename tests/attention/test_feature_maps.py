"""Feature maps: their kernels, their draws, and how far random features are off."""

import numpy as np
import pytest
import torch
from attention_cases import brief, furthest, generators, normal, of_norm, thorough
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi, kstest
from torch import Tensor

from regard.attention.feature_maps import (
    Elu,
    FavorHyperbolic,
    FavorPositive,
    FavorTrigonometric,
    FeatureMap,
    Fourier,
    Polynomial,
    RandomFeatures,
    draw_directions,
)

EPS32, EPS64 = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps
RANDOM: tuple[type[RandomFeatures], ...] = (
    Fourier,
    FavorPositive,
    FavorTrigonometric,
    FavorHyperbolic,
)
FAVOR = RANDOM[1:]
EVERY_RANDOM = pytest.mark.parametrize("kind", RANDOM, ids=lambda kind: kind.__name__)
EVERY_FAVOR = pytest.mark.parametrize("kind", FAVOR, ids=lambda kind: kind.__name__)
EITHER_DRAW = pytest.mark.parametrize("orthogonal", [True, False], ids=["orthogonal", "iid"])


def phi(features: FeatureMap, x: Tensor) -> tuple[Tensor, Tensor]:
    values, scale = features(x)
    return values, scale


def products(features: FeatureMap, q: Tensor, k: Tensor) -> Tensor:
    """φ(q)·φ(k), pair by pair."""
    (of_query, query_scale), (of_key, key_scale) = phi(features, q), phi(features, k)
    return (of_query * of_key).sum(-1) * (query_scale + key_scale).exp()


def halved_squares(x: Tensor, y: Tensor) -> Tensor:
    halves: Tensor = (x.square().sum(-1) + y.square().sum(-1)) / 2
    return halves


def formula(kind: type[FeatureMap], w: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """What a draw w makes of the kernel, pair by pair, from the formula."""
    x, y = (z / z.shape[-1] ** 0.25 for z in (q, k))
    waves: Tensor = torch.cos((x - y) @ w.T).mean(-1)
    if kind is Fourier:
        return waves
    factor: Tensor = halved_squares(x, y).exp()
    if kind is FavorTrigonometric:
        return factor * waves
    if kind is FavorPositive:
        return torch.exp((x + y) @ w.T).mean(-1) / factor
    assert kind is FavorHyperbolic
    return torch.cosh((x + y) @ w.T).mean(-1) / factor


def rounding(features: RandomFeatures, q: Tensor, k: Tensor, *, eps: float = EPS64) -> Tensor:
    """How far φ(q)·φ(k) may be off for each pair, where its terms are at most 1.

    An exponent or angle is a sum of d products and a square norm, each rounded d + 8 times at most
    (scaling and halving included), and as much again in the formula; there are m terms to add.
    """
    w = features.directions.double().abs()
    x, y = (z.double().abs() / z.shape[-1] ** 0.25 for z in (q, k))
    size = ((x + y) @ w.T).amax(-1) + 2 * halved_squares(x, y)
    bound: Tensor = (sum(w.shape) + 8) * eps * (1 + size)
    return bound


# The kernels


@thorough
@given(data=st.data(), d=st.integers(1, 4), degree=st.integers(1, 4))
def test_polynomial_features_are_the_power_of_the_product(
    data: st.DataObject, d: int, degree: int
) -> None:
    integers = st.lists(st.integers(-3, 3), min_size=d, max_size=d)
    q, k = (torch.tensor(data.draw(integers), dtype=torch.float64) for _ in range(2))
    features = Polynomial(d=d, degree=degree)
    values, scale = phi(features, q)
    assert values.shape == (features.size(d),)
    assert scale == 0
    # Seven roundings a feature at most, one a product of two, and those of their sum.
    bound = (features.size(d) + 15) * EPS64 * int(q.abs() @ k.abs()) ** degree
    assert abs(products(features, q, k) - int(q @ k) ** degree) <= bound


def test_a_polynomial_has_a_degree() -> None:
    with pytest.raises(ValueError, match="not 0"):
        Polynomial(d=3, degree=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_elu_features_are_exact_however_negative(dtype: torch.dtype) -> None:
    """e^x − 1 + 1 would be 0 from −17 on in float32, though the map is said to be positive."""
    x = torch.linspace(-80, 80, 321, dtype=dtype)[:, None]
    values, scale = phi(Elu(), x)
    exact = torch.where(x > 0, x.double() + 1, x.double().clamp(max=0).exp())
    assert values.shape == x.shape
    assert not scale.any()
    assert furthest(values.double() / exact, torch.ones_like(exact)) <= 4 * torch.finfo(dtype).eps


@EVERY_RANDOM
@thorough
@given(
    d=st.integers(1, 6),
    features=st.integers(1, 20),
    orthogonal=st.booleans(),
    length=st.sampled_from([0.0, 0.1, 1.0, 5.0]),
    seed=st.integers(0, 100),
    generator=generators(),
)
def test_random_features_are_the_kernel_of_their_draw(
    d: int,
    features: int,
    orthogonal: bool,
    length: float,
    seed: int,
    generator: torch.Generator,
    kind: type[RandomFeatures],
) -> None:
    phi_of = kind(d=d, features=features, orthogonal=orthogonal, seed=seed).double()
    q, k = length * torch.randn(2, 5, d, generator=generator, dtype=torch.float64)
    values, scale = phi(phi_of, q)
    assert values.shape == (5, phi_of.size(d))
    assert scale.shape == (5,)
    assert (values > 0).all() or not phi_of.positive
    expected = formula(kind, phi_of.directions, q, k)
    # Waves add up to the kernel with terms of either sign, exponentials with positive ones.
    x, y = (z / d**0.25 for z in (q, k))
    largest = {
        Fourier: torch.ones(5, dtype=torch.float64),
        FavorTrigonometric: halved_squares(x, y).exp(),
    }.get(kind, expected)
    unit = rounding(phi_of, q, k) * largest
    assert furthest(products(phi_of, q, k) / unit, expected / unit) <= 1


@pytest.mark.parametrize("sigma", [None, 0.5, 3.0])
def test_fourier_features_of_any_width_are_their_kernel(sigma: float | None) -> None:
    features = Fourier(d=4, features=7, sigma=sigma).double()
    q, k = normal(2, 5, 4)
    wide = 4**0.25 if sigma is None else sigma
    expected = torch.cos((q - k) / wide @ features.directions.T).mean(-1)
    assert furthest(products(features, q, k), expected) <= 1e3 * EPS64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_vector_s_fourier_features_have_length_one(dtype: torch.dtype) -> None:
    features = Fourier(d=8, features=50)
    for length in (0.0, 1.0, 1e6):
        x = length * normal(20, 8).to(dtype)
        # 100 squares that add up to 1, each rounded a few times.
        off = furthest(products(features, x, x), torch.ones(20))
        assert off <= 20 * torch.finfo(dtype).eps, length


# Huge vectors


@EVERY_FAVOR
def test_values_of_huge_vectors_neither_overflow_nor_vanish(kind: type[RandomFeatures]) -> None:
    features = kind(d=16, features=64)
    m = features.size(16)
    for length in (0.0, 1.0, 100.0, 1e4):
        x = of_norm(normal(50, 16), 1.0).float() * length
        values, scale = phi(features, x)
        assert values.isfinite().all(), length
        assert scale.isfinite().all(), length
        if kind is FavorTrigonometric:
            assert furthest(values.square().sum(-1), torch.ones(50)) <= 20 * EPS32, length
        else:
            # The largest is 1/√m but for the rounding of its exponent.
            off = values.amax(-1).double() * m**0.5
            bound = float(rounding(features, x, x, eps=EPS32).max())
            assert furthest(off.log(), torch.zeros(50)) <= bound, length


@pytest.mark.parametrize(
    "features", [Elu(), Polynomial(d=16, degree=3), Fourier(d=16, features=64)]
)
def test_other_features_of_long_vectors_are_finite_and_not_all_zero(features: FeatureMap) -> None:
    values, scale = phi(features, of_norm(normal(50, 16), 100.0).float())
    assert values.isfinite().all()
    assert scale.isfinite().all()
    assert values.any(-1).all()


# Draws


@EVERY_RANDOM
@EITHER_DRAW
def test_a_map_draws_on_request_only(kind: type[RandomFeatures], orthogonal: bool) -> None:
    x = normal(5, 4).float()

    def make(seed: int) -> RandomFeatures:
        return kind(d=4, features=10, orthogonal=orthogonal, seed=seed)

    features = make(0)
    assert features.directions.shape == (10, 4)
    before, kept = phi(features, x)[0], features.directions.clone()
    # Exact: the same operations on the same shapes.
    assert torch.equal(phi(features.train(), x)[0], before)
    assert torch.equal(phi(features.eval(), x)[0], before)
    assert torch.equal(features.directions, kept)
    assert not torch.equal(make(1).directions, kept)
    features.redraw(1)
    assert torch.equal(features.directions, make(1).directions)
    assert furthest(phi(features, x)[0], before) > 0.01
    features.redraw(0)
    assert torch.equal(features.directions, kept)


@EITHER_DRAW
def test_a_draw_leaves_the_global_generators_alone(orthogonal: bool) -> None:
    before = torch.get_rng_state()
    state = np.random.get_state(legacy=False)
    FavorPositive(d=4, features=6, orthogonal=orthogonal)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_equal(np.random.get_state(legacy=False), state)


@EVERY_RANDOM
def test_features_without_a_direction_are_refused(kind: type[RandomFeatures]) -> None:
    with pytest.raises(ValueError, match="not 0"):
        kind(d=4, features=0)


@brief
@given(d=st.integers(2, 16), blocks=st.integers(1, 4), seed=st.integers(0, 1000), data=st.data())
def test_orthogonal_directions_are_so_in_blocks_of_which_each_is_drawn_for_itself(
    d: int, blocks: int, seed: int, data: st.DataObject
) -> None:
    features = (blocks - 1) * d + data.draw(st.integers(1, d))
    rows = draw_directions(features, d, orthogonal=True, seed=seed)
    cosines = (of_norm(rows, 1.0) @ of_norm(rows, 1.0).T).abs()
    block = torch.arange(features) // d
    inside = (block[:, None] == block) & ~torch.eye(features, dtype=torch.bool)
    assert furthest(cosines[inside], torch.zeros_like(cosines[inside])) <= 4 * d * EPS64
    # No row is another's neighbor by chance, let alone its copy.
    outside = block[:, None] != block
    assert not (cosines[outside] > 1 - 1e-13).any()
    assert not (cosines[outside] < 1e-12).any()


@EITHER_DRAW
@pytest.mark.parametrize("d", [2, 16])
def test_norms_are_those_of_normal_vectors(d: int, orthogonal: bool) -> None:
    norms = draw_directions(4000 * d, d, orthogonal=orthogonal, seed=1).norm(dim=1)
    assert kstest(norms.numpy(), chi(d).cdf).pvalue > 0.001
    # In a block they are independent too: the spread of a block's sum tells.
    sums = norms.view(4000, d).sum(1)
    spread = float(sums.var() / (d * chi(d).var()))
    assert abs(spread - 1) <= 5 * (2 / 4000) ** 0.5


@EITHER_DRAW
def test_each_direction_by_itself_is_standard_normal(orthogonal: bool) -> None:
    d, blocks = 5, 20_000
    rows = draw_directions(blocks * d, d, orthogonal=orthogonal, seed=2).view(blocks, d, d)
    for place in range(d):  # the last row of a block is no less random than the first
        drawn = rows[:, place]
        assert furthest(drawn.mean(0), torch.zeros(d)) <= 5 * blocks**-0.5
        squares = drawn.T @ drawn / blocks
        # The product of two normal numbers has variance 1, a square 2.
        error = ((1 + torch.eye(d)) / blocks) ** 0.5
        assert furthest(squares / error, torch.eye(d) / error) <= 5
        assert all(kstest(column.numpy(), "norm").pvalue > 1e-4 for column in drawn.T)


# What random features are off by


class Estimates:
    """φ(q)·φ(k) of each direction of one huge map, to be averaged m at a time."""

    def __init__(self, kind: type[RandomFeatures], *, d: int, draws: int, orthogonal: bool) -> None:
        self.d, self.directions = d, 2 if kind in (FavorTrigonometric, FavorHyperbolic) else 1
        self.features = kind(d=d, features=draws, orthogonal=orthogonal, seed=7).double()

    def of(self, x: Tensor, y: Tensor) -> Tensor:
        """For x and y of the theory, which scales them already."""
        (of_x, x_scale), (of_y, y_scale) = (phi(self.features, z * self.d**0.25) for z in (x, y))
        halves = (of_x * of_y * (x_scale + y_scale).exp()).view(self.directions, -1)
        return halves.sum(0) * halves.shape[1]


def squared_errors(estimates: Tensor, exact: float) -> tuple[float, float]:
    """The mean square of the errors of independent estimates, and its standard error."""
    squares = (estimates - exact).square()
    return float(squares.mean()), float(squares.std() / len(squares) ** 0.5)


def pairs_of(d: int) -> list[tuple[Tensor, Tensor]]:
    """Vectors whose sum is at most 1 long: they agree, differ, or are opposite."""
    first, second = (of_norm(normal(d, seed=seed), 1.0) for seed in (11, 12))
    return [
        (0.5 * first, 0.4 * first),
        (0.4 * first, 0.3 * second),
        (0.8 * first, -0.4 * first),
        (0.6 * first, 0.35 * second - 0.5 * first),
        (0.7 * first, -0.7 * first + 0.1 * second),
    ]


def theory(kind: type[RandomFeatures], x: Tensor, y: Tensor, m: int) -> float:
    """The mean squared error of m independent directions (Choromanski et al., 2021, lemma 2)."""
    a, b = ((z @ z).item() for z in (x + y, x - y))
    softmax = np.exp((x @ y).item())
    if kind is FavorTrigonometric:
        return float(np.exp(a) * softmax**-2 * (1 - np.exp(-b)) ** 2 / (2 * m))
    positive = np.exp(a) * softmax**2 * (1 - np.exp(-a)) / m
    return float(positive if kind is FavorPositive else (1 - np.exp(-a)) / 2 * positive)


@EVERY_FAVOR
def test_independent_directions_have_the_error_of_the_theory(kind: type[RandomFeatures]) -> None:
    """From 200 000 estimates of 8 directions each, which hyperbolic features take twice."""
    huge = Estimates(kind, d=4, draws=1_600_000, orthogonal=False)
    for x, y in pairs_of(4):
        estimates = huge.of(x, y).view(-1, 8).mean(1)
        exact = float(np.exp((x @ y).item()))
        bias = float(estimates.mean()) - exact
        assert abs(bias) <= 4 * float(estimates.std()) / len(estimates) ** 0.5
        measured, standard_error = squared_errors(estimates, exact)
        assert abs(measured - theory(kind, x, y, 8)) <= 4 * standard_error
        # So that the formula of another map, or twice this one's, would be found out.
        assert 4 * standard_error <= 0.1 * measured


@pytest.mark.parametrize(("d", "m"), [(8, 6), (4, 4)])
def test_orthogonal_directions_keep_the_bound_and_beat_independent_ones(d: int, m: int) -> None:
    """Of each block of d, drawn for itself, the first m are an estimate."""
    orthogonal, independent = (
        Estimates(FavorPositive, d=d, draws=800_000, orthogonal=draw) for draw in (True, False)
    )
    first, second = (of_norm(normal(d, seed=seed), 1.0) for seed in (11, 12))
    for x, y in ((0.5 * first, 0.4 * first), (0.6 * first, 0.9 * second - 0.6 * first)):
        exact = float(np.exp((x @ y).item()))
        measured, standard_error = squared_errors(
            orthogonal.of(x, y).view(-1, d)[:, :m].mean(1), exact
        )
        gain = 2 * (m - 1) / (m * (d + 2)) * (exact - float((-halved_squares(x, y)).exp())) ** 2
        bound = theory(FavorPositive, x, y, m) - gain
        assert measured <= bound + 4 * standard_error
        plain, plain_error = squared_errors(independent.of(x, y).view(-1, d)[:, :m].mean(1), exact)
        assert plain - measured > 4 * (standard_error**2 + plain_error**2) ** 0.5
