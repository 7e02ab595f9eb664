"""Quadrature gives the known moments; loops count what they do."""

import math

import pytest
import torch

from regard.derivations import causal_sums, complexity, kernels
from regard.derivations.counting import Counter, operations
from regard.derivations.derivation import difference
from regard.derivations.expectation import density, expect, integrate, legendre
from regard.derivations.tex_algebra import FUNCTIONS


@pytest.mark.parametrize("d", [1, 2, 3])
def test_polynomials_are_exact(d: int) -> None:
    mean = torch.linspace(-1, 2, d, dtype=torch.float64)
    found = expect(lambda z: z**4, mean, 0.5, nodes=3)
    expected = mean**4 + 6 * mean**2 * 0.25 + 3 * 0.25**2
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)
    products = expect(lambda z: z.prod(1), mean, 0.5, nodes=3)
    torch.testing.assert_close(products, mean.prod(), rtol=1e-13, atol=1e-14)


def test_each_entry_has_its_own_deviation() -> None:
    deviation = torch.tensor([0.5, 2.0], dtype=torch.float64)
    found = expect(lambda z: z**2, torch.zeros(2, dtype=torch.float64), deviation, nodes=2)
    torch.testing.assert_close(found, deviation**2)


def test_cosines_and_exponentials() -> None:
    zero = torch.zeros(1, dtype=torch.float64)
    assert float(expect(lambda z: z[:, 0].cos(), zero, nodes=24)) == pytest.approx(
        math.exp(-0.5), rel=1e-13
    )
    assert float(expect(lambda z: z[:, 0].exp(), zero, 1.5, nodes=40)) == pytest.approx(
        math.exp(1.125), rel=1e-13
    )


def test_the_normal_density() -> None:
    half = integrate(lambda z: density(z, 1.0, 0.5), 1, 10, nodes=80)
    assert float(half) == pytest.approx(0.5, rel=1e-13)
    square = integrate(density, -12, 12, d=2, nodes=80)
    assert float(square) == pytest.approx(1, rel=1e-13)
    above = integrate(density, 0.7, 12, nodes=80)
    assert float(FUNCTIONS[r"\Phi"](torch.tensor(-0.7).double())) == pytest.approx(
        float(above), rel=1e-6
    )


def test_legendre_weights_add_up_to_the_length() -> None:
    places, weights = legendre(-1, 3, 5)
    assert float(weights.sum()) == pytest.approx(4)
    assert float(weights @ places**3) == pytest.approx(20)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 4), (5, 1, 2)])
def test_products_are_counted_and_right(sizes: tuple[int, int, int]) -> None:
    n, m, p = sizes
    a, b = torch.randn(n, m).double(), torch.randn(m, p).double()
    counter = Counter()
    torch.testing.assert_close(counter.product(a, b), a @ b)
    assert counter.count == n * m * p
    assert float(operations(lambda c: c.scaled(a, a.exp()))) == n * m


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def test_the_counted_layer_is_attention() -> None:
    x = complexity.ATTENTION_COMPLEXITY.draw(generator())
    q, k, v = x.X @ x.W_q, x.X @ x.W_k, x.X @ x.W_v
    exact = (q @ k.T / len(x.W_q) ** 0.5).softmax(1) @ v
    torch.testing.assert_close(complexity.self_attention(Counter(), x), exact)


def test_the_counted_features_are_attention() -> None:
    derivation = kernels.RANDOM_FEATURES_COST
    x = derivation.draw(generator())
    (line,) = (step for step in derivation.steps if step.tex.startswith("V_i'"))
    assert difference(line.values(derivation.at(x)), kernels.linear_attention(Counter(), x)) < 1e-9


def test_the_counted_sums_are_masked_attention() -> None:
    x = causal_sums.CAUSAL_SUMS.draw(generator())
    exact = causal_sums.CAUSAL_SUMS.steps[0].values(causal_sums.CAUSAL_SUMS.at(x))
    assert difference(exact, causal_sums.recurrent_attention(Counter(), x)) < 1e-9
