"""Sliders have the values of the functions of their studies, also in a browser."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from browser import empty_tab
from regard.attention import KernelAttention, Softmax
from regard.attention.feature_maps import FavorPositive
from regard.book.predictions import PREDICTIONS
from regard.book.sliders import SLIDERS, Axis, formula_script
from regard.positions import RelativeBias
from regard.studies.costs import multiplications
from regard.studies.kernels.causal_sums import after
from regard.studies.kernels.favor import KINDS, Pair
from regard.studies.kernels.favor import predicted as predicted_square
from regard.studies.kernels.gaussian_kernel import (
    NORM,
    QUANTILES,
    fixed_norm_exponents,
    normal_exponents,
    predicted_error,
)
from regard.studies.positions.position_vectors import (
    BASE,
    TURN,
    count,
    cross_terms,
    draw_pairs,
    wavelengths,
)
from regard.studies.recurrent.backpropagation import predicted as predicted_norm
from regard.studies.registry import all_studies
from regard.studies.scaling.complexity import predicted_counts
from regard.studies.scaling.scale import Draw
from regard.studies.single_head.attention_maps import formula_weight
from regard.studies.single_head.noisy_keys import (
    noisy_keys,
    outputs,
    query_along,
    without_noise,
)
from regard.studies.single_head.one_head import key_weights, selected_weight
from regard.studies.structure.receptive_field import field, paths, planted_pointers
from regard.studies.tensors import normal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Function = Callable[..., Sequence[float]]
"""Results by the functions of a study, with parameters by symbol."""
REFERENCES: dict[str, Function] = {}


def reference(name: str) -> Callable[[Function], Function]:
    """Register a function of a study as what a slider must equal."""

    def register(function: Function) -> Function:
        REFERENCES[name] = function
        return function

    return register


@reference("copying")
def _copying(n: int, m: float) -> Sequence[float]:
    weights = key_weights(n, m, selected=1)
    assert float(weights[0]) == pytest.approx(selected_weight(n, m, selected=1))
    return float(weights[0]), float(weights[1:].sum())


@reference("averaging")
def _averaging(n: int, t: float) -> Sequence[float]:
    weights = key_weights(n, t, selected=2)
    return float(weights[0]), float(weights[2:].sum())


@reference("noisy-keys-one-head")
def _noisy_keys(n: int, t: float, α: float, γ: float) -> Sequence[float]:
    one, first, second = (
        without_noise(torch.tensor([γ], dtype=torch.float64), query_along(n, t, *keys))[0, 0]
        for keys in ((0, 1), (0,), (1,))
    )
    # One standard deviation of the difference of two scores, which is 2t√α, on both sides.
    up, down = (
        (t * torch.tensor([γ + x, 1 - x, *[0] * (n - 2)], dtype=torch.float64)).softmax(0)[0]
        for x in (α**0.5, -(α**0.5))
    )
    return float(one), float(up), float(down), float(first + second) / 2


@reference("random-heads")
def _random_heads(n: int, h: int) -> Sequence[float]:
    own = formula_weight(h, n)
    return own, (1 - own) / (n - 1)


@reference("scale")
def _scale(μ: float, h: int, σ: float) -> Sequence[float]:
    variance = Draw(μ, σ, 0.0, 0).variance(h)
    return variance**0.5, (variance / h) ** 0.5


@reference("complexity")
def _complexity(h: int, n: int) -> Sequence[float]:
    return *predicted_counts(n, h), sum(predicted_counts(n, h))


def _ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device="meta")


@reference("order-of-products")
def _order_of_products(m: int, L: int, d: int) -> Sequence[float]:  # noqa: N803
    query, key, value = _ones(L, m), _ones(L, m), _ones(L, d)
    return (
        multiplications(lambda: query @ key.mT @ value),
        multiplications(lambda: query @ (key.mT @ value)),
    )


@reference("truncation")
def _truncation(n: int, k: int, h: int) -> Sequence[float]:
    value, left, right = _ones(n, h), _ones(n, k), _ones(k, n)
    return (
        multiplications(lambda: _ones(n, n) @ value),
        multiplications(lambda: left @ (right @ value)),
    )


@reference("causal-sums")
def _causal_sums(d: int, N: int, m: int) -> Sequence[float]:  # noqa: N803
    """By differences of measured bytes: states also have a counter, and a cache a free slot."""
    few, many = (after(Softmax(), normal(0, 3, 1, 1, n, d))[1] for n in (8, 16))
    narrow, wide = (
        after(KernelAttention(FavorPositive(d=d, features=count)), normal(0, 3, 1, 1, 8, d))[1]
        for count in (m, 2 * m)
    )
    return (many - few) / 8 / 8 * N, (wide - narrow) / 8


@reference("fourier-features")
def _fourier_features(m: int, D: int, r: float) -> Sequence[float]:  # noqa: N803
    pairs = np.ones_like(QUANTILES)
    return [predicted_error(u * pairs, m) for u in (D**0.5, r**2 / D**0.5)]


@reference("favor")
def _favor(m: int, c: float, r: float) -> Sequence[float]:
    pair = Pair.of(r, c)
    return [predicted_square(name, pair, m) ** 0.5 / pair.kernel for name in KINDS]


@reference("vanishing-and-exploding")
def _vanishing(ρ: float, T: int, σ: float) -> Sequence[float]:  # noqa: N803
    return ρ**T, predicted_norm(ρ, σ, T), max(ρ, σ) ** T


@reference("relative-bias")
def _relative_bias(m: int, T: int, k: int) -> Sequence[float]:  # noqa: N803
    return count(RelativeBias(heads=m, length=T)), count(RelativeBias(heads=m, clip=k))


@reference("adding")
def _adding(σ: float, d: int) -> Sequence[float]:
    size = _sizes(d // 2 * 2)
    return σ**2 * size[0] * d, σ**2 * size[1] * d**0.5, σ * size[2] * d**0.5


def _sizes(d: int) -> Sequence[float]:
    """Sizes of the terms of drawn words with entries of variance 1, as multiples of √d and d."""
    pairs = draw_pairs(20_000, d, 1.0, 1, torch.Generator().manual_seed(d))
    x1, _, x2, _ = pairs
    same, other = (x1**2).sum(-1).mean(), (x1 * x2).sum(-1).std()
    return float(same) / d, float(other) / d**0.5, float(cross_terms(pairs).std()) / d**0.5


@reference("shifting")
def _shifting(b: float, d: int) -> Sequence[float]:
    d = d // 2 * 2
    measured = wavelengths(0, d), wavelengths(1, d)
    # The study has one base, and frequencies are powers of it.
    from_0, from_1 = (TURN * (each / TURN) ** (math.log(b) / math.log(BASE)) for each in measured)
    return from_0[0], from_1[0], from_0[-1], from_1[-1]


@reference("receptive-field")
def _receptive_field(k: int, n: int, N: int) -> Sequence[float]:  # noqa: N803
    found = paths(planted_pointers(k, n, N), "argmax")
    return float(found.sum(-1).max()), float(field(found).max())


TOLERANCES = {"fourier-features": 1e-5, "adding": 4 / math.sqrt(2 * 20_000), "shifting": 1e-6}
"""Largest relative errors, where not 10⁻¹²: quantiles are discrete, words are drawn."""
LIMITS = {"receptive-field": {"N": 200.0, "n": 6.0}}
"""Largest values of parameters in the tests, where the study's function is slow."""


def drawn(axis: Axis, draw: random.Random, most: float | None = None) -> float:
    """A random value in the range of an axis."""
    share, high = draw.random(), min(axis.high, most or axis.high)
    if axis.log:
        value = axis.low * math.pow(high / axis.low, share)
    else:
        value = axis.low + (high - axis.low) * share
    return round(value) if axis.whole else value


def points(name: str, times: int) -> Iterator[dict[str, float]]:
    """Random values of a slider's parameters."""
    draw, most = random.Random(name), LIMITS.get(name, {})
    for _ in range(times):
        yield {axis.symbol: drawn(axis, draw, most.get(axis.symbol)) for axis in SLIDERS[name].axes}


def test_each_slider_belongs_to_a_study_and_has_a_reference() -> None:
    assert len(SLIDERS) >= 12
    assert set(SLIDERS) <= {study.name for study in all_studies()}
    assert set(SLIDERS) == set(REFERENCES) == set(PREDICTIONS)


@pytest.mark.parametrize("name", SLIDERS)
def test_formulas_equal_the_functions_of_the_study(name: str) -> None:
    few = name in LIMITS or name in (*TOLERANCES, "causal-sums")
    for values in points(name, 8 if few else 50):
        if name in ("adding", "shifting"):  # entries in pairs
            values["d"] = values["d"] // 2 * 2
        found, expected = SLIDERS[name].at(**values), REFERENCES[name](**values)
        assert found == pytest.approx(expected, rel=TOLERANCES.get(name, 1e-12), abs=1e-15), values


@pytest.mark.parametrize("name", SLIDERS)
def test_a_slider_starts_in_its_ranges(name: str) -> None:
    for axis in SLIDERS[name].axes:
        assert axis.low <= axis.start <= axis.high
        assert not axis.log or axis.low > 0
        assert not axis.whole or all(x == round(x) for x in (axis.low, axis.high, axis.start))
    assert all(map(math.isfinite, SLIDERS[name].at()))


@pytest.fixture(scope="module")
def tab(browser: "Browser") -> "Iterator[Page]":
    with empty_tab(browser, width=1280, scheme="light") as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("name", SLIDERS)
def test_the_page_computes_the_same(tab: "Page", name: str) -> None:
    cases = list(points(name, 40))
    symbols = [axis.symbol for axis in SLIDERS[name].axes]
    called = f"rows.map((row) => FORMULAS['{name}'](...row))"
    rows: list[list[Any]] = tab.evaluate(
        f"(rows) => {{ {formula_script([name])} return {called}; }}",
        [[case[symbol] for symbol in symbols] for case in cases],
    )
    for case, row in zip(cases, rows, strict=True):
        assert row == pytest.approx(SLIDERS[name].at(**case), rel=1e-9, abs=1e-300), case


def test_noise_moves_the_share_of_one_head_by_its_standard_deviation() -> None:
    """A sixth of the draws is above, and a sixth below, if there are only two keys."""
    alpha, t = 0.01, 8.0
    keys = noisy_keys(8000, 3, alpha, 0.0, seed=0)[:, :2]
    shares = outputs(keys, query_along(3, t, 0, 1))[:, 0]
    _, up, down, _ = SLIDERS["noisy-keys-one-head"].at(n=2, t=t, α=alpha, γ=1.0)
    assert float((shares > up).double().mean()) == pytest.approx(0.159, abs=0.015)
    assert float((shares < down).double().mean()) == pytest.approx(0.159, abs=0.015)


def test_the_pair_at_the_mean_distance_is_near_the_median_pair() -> None:
    """The slider has this pair; the study has the median over all pairs."""
    for d in (16, 64, 128):
        found = SLIDERS["fourier-features"].at(D=d, m=64, r=NORM)
        of_all = (normal_exponents(d, 1.0), fixed_norm_exponents(d))
        expected = [predicted_error(u, 64) for u in of_all]
        assert found == pytest.approx(expected, rel=0.35), d


def test_right_options_are_what_the_sliders_show() -> None:
    at = {name: slider.at for name, slider in SLIDERS.items()}
    assert at["copying"](n=1000, m=12.7)[0] == pytest.approx(at["copying"](n=10, m=8)[0], abs=1e-4)
    assert at["averaging"](n=1000, t=8)[1] == pytest.approx(0.14, abs=0.005)
    assert at["noisy-keys-one-head"](n=10, t=8, γ=1.5)[0] == pytest.approx(0.98, abs=0.005)
    assert at["random-heads"](h=8, n=20)[0] < 0.5
    assert [at["scale"](h=h)[0] for h in (64, 256)] == [8, 16]
    projections, attention, _ = at["complexity"](h=64, n=96)
    assert projections == attention
    for name, axis, below, above in [
        ("order-of-products", "L", 85, 86),
        ("truncation", "k", 32, 31),
    ]:
        (first, second), (more, fewer) = (at[name](**{axis: x}) for x in (below, above))
        assert second >= first
        assert fewer < more
    (cache, sums), (more, same) = (at["causal-sums"](N=n) for n in (8, 9))
    assert cache < sums == same < more
    (narrow, _), (wide, _) = (at["fourier-features"](D=d) for d in (16, 64))
    assert wide > 10 * narrow
    assert at["favor"](c=-1)[1:] == [0, 0]
    norms = [at["vanishing-and-exploding"](T=t)[1] for t in (1, 10, 100)]
    assert norms == pytest.approx([2, 6, 0.005], rel=0.1)
    assert [at["relative-bias"](T=t) for t in (16, 32)] == [[4 * 31, 36], [4 * 63, 36]]
    (_, words, cross), (_, more_words, more_cross) = (at["adding"](d=d) for d in (256, 1024))
    assert cross / words == more_cross / more_words
    longest = [at["shifting"](d=d)[2] / at["shifting"]()[3] for d in (64, 512)]
    assert longest == pytest.approx([0.75, 0.96], abs=0.01)
    assert [at["receptive-field"](n=n)[1] for n in (4, 5)] == [81, 100]
