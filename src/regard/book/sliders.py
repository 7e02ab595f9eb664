"""Sliders: a study's numbers over a grid of its parameters, computed when the book is built."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import isfinite
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.positions import RelativeBias
from regard.studies.kernels.fourier_features import (
    NORM,
    fixed_norm_exponents,
    normal_exponents,
    predicted_error,
)
from regard.studies.positions.relative_bias import count
from regard.studies.recurrent.vanishing import predicted
from regard.studies.scaling.complexity import predicted_counts
from regard.studies.single_head.noisy_keys import A, B, noisy_keys, outputs, query_along, two_heads
from regard.studies.single_head.one_query import key_weights
from regard.studies.single_head.random_heads import (
    averaged_weight,
    diagonal_weight,
    equal_maps,
    formula_weight,
)

DRAWS = 100
"""Draws of noisy keys behind each number."""


@dataclass(frozen=True)
class Axis:
    """A parameter with the values that its slider takes."""

    symbol: str
    about: str
    values: tuple[float, ...]
    start: float
    """Value at first, one of `values`."""


@dataclass(frozen=True)
class Slider:
    """Parameters, and a function that returns the numbers shown for their values."""

    title: str
    axes: tuple[Axis, ...]
    results: tuple[str, ...]
    compute: Callable[..., Sequence[float]]
    logarithmic: bool = False
    """Whether the curves are drawn over a logarithmic scale."""

    def data(self) -> dict[str, Any]:
        """Return values, results and numbers for a page: row by row, the last axis fastest."""
        grid = product(*(axis.values for axis in self.axes))
        return {
            "axes": [[f"{value:g}" for value in axis.values] for axis in self.axes],
            "results": self.results,
            "log": self.logarithmic,
            "numbers": [[_rounded(number) for number in self.compute(*at)] for at in grid],
        }


def _rounded(number: float) -> float | None:
    """Four digits; none where the number isn't finite, which JSON can't write."""
    return float(f"{number:.4g}") if isfinite(number) else None


def _averaging(n: float, t: float) -> Sequence[float]:
    weights = key_weights(int(n), t, selected=2)
    return float(weights[0]), float(weights[1]), float(weights[2:].sum())


def _noisy_keys(n: float, t: float, alpha: float, gamma: float) -> Sequence[float]:
    keys = _keys(int(n), alpha).clone()
    keys[:, A, A] += gamma - 1
    one, two = outputs(keys, query_along(int(n), t, A, B)).mean(0), two_heads(keys, t).mean(0)
    return tuple(float(c[i]) for c in (one, two) for i in (A, B))


@cache
def _keys(n: int, alpha: float) -> Float[Tensor, "draws n n"]:
    return noisy_keys(DRAWS, n, alpha, 0.0, seed=0)


def _equal_heads(h: float, n: float) -> Sequence[float]:
    size = int(h), int(n)
    return diagonal_weight(equal_maps(*size, seed=0)), formula_weight(*size), averaged_weight(*size)


def _fourier(d: float, m: float) -> Sequence[float]:
    at_unit_variance, at_fixed_norm = normal_exponents(int(d), 1.0), fixed_norm_exponents(int(d))
    return predicted_error(at_unit_variance, int(m)), predicted_error(at_fixed_norm, int(m))


def _vanishing(radius: float, stretch: float, steps: float) -> Sequence[float]:
    largest, count = max(radius, stretch), int(steps)
    return radius**count, predicted(radius, stretch, count), largest**count


def _layer_costs(h: float, n: float) -> Sequence[float]:
    projections, attention = predicted_counts(int(n), int(h))
    return projections, attention, projections + attention


@cache
def _learned(**sizes: int) -> int:
    return count(RelativeBias(**sizes))


def _relative_bias(t: float, m: float, k: float) -> Sequence[float]:
    return _learned(heads=int(m), length=int(t)), _learned(heads=int(m), clip=int(k))


LENGTHS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)

SLIDERS = {
    "averaging": Slider(
        "Weights of one query",
        (
            Axis("n", "keys", (3, 4, 6, 10, 20, 50, 100, 300, 1000), 10),
            Axis("t", "length of the query along each key", LENGTHS, 8.0),
        ),
        ("weight of v_a", "weight of v_b", "all others"),
        _averaging,
    ),
    "noisy-keys-one-head": Slider(
        f"Weights with noisy keys, mean of {DRAWS} draws",
        (
            Axis("n", "keys", (4, 10, 40), 10),
            Axis("t", "length of the query", LENGTHS, 8.0),
            Axis("α", "variance of the keys", (1e-6, 1e-4, 1e-3, 1e-2, 0.1), 1e-6),
            Axis("γ", "factor of k_a", (0.0, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0), 1.0),
        ),
        ("one head: v_a", "one head: v_b", "two heads: v_a", "two heads: v_b"),
        _noisy_keys,
    ),
    "random-heads": Slider(
        "Diagonal weight where Q = K",
        (
            Axis("h", "width of the head", (4, 8, 16, 32, 64, 100, 144), 64),
            Axis("n", "tokens", (2, 5, 10, 20, 50, 100, 200), 20),
        ),
        ("measured", "formula", "averaged over ‖q‖²"),
        _equal_heads,
    ),
    "complexity": Slider(
        "Multiplications of a layer",
        (
            Axis("h", "width", (16, 32, 64, 128, 256, 512, 1024), 64),
            Axis("n", "tokens", (12, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144), 96),
        ),
        ("projections, 3nh²", "attention, 2n²h", "sum"),
        _layer_costs,
        logarithmic=True,
    ),
    "fourier-features": Slider(
        "Relative error of the kernel, |K̂ − K|/K, median over pairs",
        (
            Axis("D", "width of queries and keys", (2, 4, 8, 16, 32, 64, 128), 16),
            Axis("m", "waves", (16, 32, 64, 128, 256, 512, 1024, 4096, 16384), 256),
        ),
        ("entries of unit variance", f"norms {NORM:g}"),
        _fourier,
        logarithmic=True,
    ),
    "vanishing-and-exploding": Slider(
        "Norm of the gradient, T steps back",
        (
            Axis("ρ", "spectral radius", (0.0, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0, 1.05, 1.1, 1.5), 0.9),
            Axis("σ", "largest singular value", (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0), 2.0),
            Axis("T", "steps", (1, 2, 3, 5, 10, 20, 50, 100, 200), 10),
        ),
        ("ρ^T, least", "‖∂h_T/∂h₀‖", "σ^T, most"),
        _vanishing,
        logarithmic=True,
    ),
    "relative-bias": Slider(
        "Parameters of a relative bias",
        (
            Axis("T", "tokens", (4, 8, 16, 32, 64, 128, 256, 512, 1024), 16),
            Axis("m", "heads", (1, 2, 4, 8, 12, 16), 4),
            Axis("k", "distance at which it is clipped", (1, 2, 4, 8, 16, 32), 4),
        ),
        ("each distance", "clipped"),
        _relative_bias,
        logarithmic=True,
    ),
}  # fmt: skip
"""Sliders by study."""
