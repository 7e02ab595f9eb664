"""The Gaussian kernel in softmax attention, and the error of its random Fourier features."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from msgspec import Meta
from scipy.stats import beta, chi2, norm
from torch import Tensor

from regard.attention import Softmax
from regard.attention.feature_maps import FavorTrigonometric, Fourier, RandomFeatures
from regard.errors import UserError
from regard.studies.figure import Drawing, Line, Series, chart, figure, series
from regard.studies.finding import (
    Measurement,
    Measurements,
    at_least,
    at_most,
    equal,
    informational,
)
from regard.studies.kernels.heads import TOKENS, Head, Sums, compare, draw_heads, gather
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, largest, normal

MANY = 20_000
"""Number of waves that estimate an expectation."""
NORM = 2.0
"""Fixed norm of queries and keys: that of unit variance at width 4."""
QUANTILES = (np.arange(400) + 0.5) / 400
RESAMPLES = 100
"""Number of bootstrap samples of heads, for standard errors."""

Errors: TypeAlias = Float[np.ndarray, "heads n"]
Width = Annotated[int, Meta(ge=2, le=128)]
Waves = Annotated[int, Meta(ge=4, le=4096)]
Variance: TypeAlias = Literal["1/σ²", "σ²"]
"""Variance of each entry of a direction."""
DOCUMENT: Variance = "σ²"
"""The course's value."""
DRAWN = 14
"""Number of queries and keys in the figure."""
Queries: TypeAlias = Float[Tensor, "queries d"]
Keys: TypeAlias = Float[Tensor, "keys d"]


@study()
def gaussian_identity(
    d: Annotated[int, Meta(ge=1, le=256)] = 16,
    n: Annotated[int, Meta(ge=2, le=128)] = 64,
    spread: Annotated[float, Meta(ge=0.1, le=4)] = 1.0,
    width: Annotated[float, Meta(ge=0.1, le=10)] = 1.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How is softmax attention related to the Gaussian kernel?

    With σ² = √d, e^(q·k/√d) is exactly the Gaussian kernel of q and k, times a factor of q alone
    and a factor of k alone.

    $$ e^{q \cdot k / \sqrt{d}} = e^{\lVert q \rVert^2 / 2\sigma^2} \, e^{-\lVert q - k \rVert^2 /
    2\sigma^2} \, e^{\lVert k \rVert^2 / 2\sigma^2}, \quad \sigma^2 = \sqrt{d} $$

    Both sides are compared for random queries and keys, and softmax attention with attention by the
    Gaussian kernel, with the factor of the key and without.

    Figure. One dot per pair of query and key. Left: the exponent of the Gaussian kernel against
    that of softmax; the dots scatter. Right: with the two norms added, all dots are on the diagonal
    (line).

    Args:
        d: width of queries and keys
        n: number of queries and of keys
        spread: standard deviation of their entries
        width: σ² as a multiple of √d
    """
    query, key = spread * normal(seed, 2, n, d)
    level = spread * d**0.5 * F.normalize(key, dim=1)
    variance = width * d**0.5
    gauss, of_query, of_key = parts(query, key, variance)
    scores, both = query @ key.mT / d**0.5, of_query + gauss + of_key
    queries, keys = query.expand(1, 2, n, d), torch.stack([key, level])[None]
    exact, exact_of_level = Softmax().weights(queries, keys)[0]
    within, bound = (rounding(query, x, variance) for x in (key, level))
    error = largest(scores - both)
    yield equal("largest difference of the logarithms of both sides", error, 0, within)
    name = "largest difference of weights from softmax"
    error = largest((gauss + of_key).softmax(1) - exact)
    yield equal(f"{name}, K·e^(‖k‖²/2σ²)", error, 0, 2 * within)
    error = largest(parts(query, level, variance)[0].softmax(1) - exact_of_level)
    yield equal(f"{name}, K alone, keys of equal length", error, 0, 2 * bound)
    yield at_least(f"{name}, K alone", largest(gauss.softmax(1) - exact), 1e-6)
    alone, together, score = (x[:DRAWN, :DRAWN].flatten() for x in (gauss, both, scores))
    ends = [score.min(), score.max()]
    dots, x = series(score, alone, style="dots", color=1), r"$q \cdot k / \sqrt{d}$"
    whole = series(score, together, style="dots", color=0), series(ends, ends, color=5)
    yield figure(
        chart(dots, title="the Gaussian kernel alone", x=x, y="exponent"),
        chart(*whole, title="with both factors", x=x, y="exponent"),
    )


def parts(
    query: Queries, key: Keys, variance: float
) -> tuple[Float[Tensor, "queries keys"], Float[Tensor, "queries 1"], Float[Tensor, " keys"]]:
    """Return the logarithms of the Gaussian kernel, of the query's factor and of the key's."""
    distances = (query[:, None] - key).square().sum(-1)
    of_query, of_key = (x.square().sum(1) / (2 * variance) for x in (query, key))
    return -distances / (2 * variance), of_query[:, None], of_key


def rounding(query: Queries, key: Keys, variance: float) -> float:
    """Return a bound for rounding of the exponents, which are sums of d terms."""
    size = (query.norm(dim=1).max() + key.norm(dim=1).max()) ** 2 / variance
    return float((query.shape[1] + 8) * torch.finfo(query.dtype).eps * (1 + size))


@study()
def fourier_features(
    widths: Annotated[tuple[Width, ...], Meta(min_length=2, max_length=5)] = (4, 16, 64),
    waves: Annotated[tuple[Waves, ...], Meta(min_length=2, max_length=5)] = (16, 64, 256, 1024),
    variance: Variance = "1/σ²",
    spread: Annotated[float, Meta(ge=0.1, le=1.5)] = 1.0,
    draws: Annotated[int, Meta(ge=20, le=200)] = 50,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How accurately do random Fourier features approximate softmax attention, depending on their
    number and the width of a head?

    Random features with w ~ N(0, I/σ²) estimate the Gaussian kernel. Its relative error falls with
    the root of their number; that of attention need not. For queries and keys of unit variance
    both grow from width 4 to 64, and at norms of 2 both fall. At D = 64, attention by 1024
    features is further from softmax attention than an output of zero.

    $$ \frac{\hat K - K}{K} \approx \sqrt{\frac{2}{m}} \, \sinh\left(\frac{\lVert q - k
    \rVert^2}{2\sigma^2}\right) Z, \quad Z \sim N(0, 1) $$

    Expected errors of the output follow from the central limit theorem: the estimates of a row are
    drawn from the normal distribution with their exact covariance, and normalized in the same way.
    Bounds are four standard errors of the measured and the expected median, over heads.

    Figure. Lines and dots: expected and measured errors. Dotted lines and squares: the same at
    fixed norm. Left: the kernel, expected by the formula. Its error falls with the root of the
    number of waves. Right: attention, expected by the central limit theorem. Its error falls with
    the number of waves at small widths, and hardly at large ones.

    Args:
        widths: D, widths of queries and keys, increasing
        waves: D_random, numbers of features, increasing
        variance: variance of each entry of a direction w, with σ² = √d
        spread: standard deviation of the entries of queries and keys
        draws: number of heads of each width, each with its own features
    """
    for name, values in {"widths": widths, "waves": waves}.items():
        if list(values) != sorted(set(values)):
            raise UserError(
                f"fourier-features: {name}: {list(values)} doesn't increase; order the values"
            )
    yield from expectation(variance, seed)
    kernels, outputs = dict[int, Regimes](), dict[int, Regimes]()
    for d in widths:
        heads = list(draw_heads(draws, d, spread=spread, seed=seed))
        generator = torch.Generator().manual_seed(seed)
        u, of_norm = normal_exponents(d, spread), [with_fixed_norm(head) for head in heads]
        kernel, output, shares = measure(heads, waves, variance, u, generator)
        u = fixed_norm_exponents(d)
        fixed_kernel, fixed_output, _ = measure(of_norm, waves, variance, u, generator)
        kernels[d], outputs[d] = (kernel, fixed_kernel), (output, fixed_output)
        for m, share in zip(waves, shares, strict=True):
            name = f"share of normalizers ≤ 0, D = {d}, {m} waves"
            # A share near 0 has no standard error: allow one row.
            yield _expected(name, share, np.mean, 1 / (draws * TOKENS))
    yield from _numbers("kernel", "", kernels, waves)
    yield from _numbers("output", "output, ", outputs, waves)
    name = f"output, D = {widths[-1]}, {waves[-1]} waves, compared with zero"
    yield at_least(name, np.median(outputs[widths[-1]][0][-1].found), 1)
    yield _errors_by_waves(kernels, outputs, waves)


class Compared(NamedTuple):
    """Errors, or shares, by head: measured and expected. A formula is one value without error."""

    found: Errors
    expected: Errors


Curve: TypeAlias = list[Compared]
"""By number of waves."""
Regimes: TypeAlias = tuple[Curve, Curve]
"""At unit variance and at fixed norm."""


def measure(
    heads: Sequence[Head],
    waves: Sequence[int],
    variance: Variance,
    exponents: Float[np.ndarray, " n"],
    generator: torch.Generator,
) -> tuple[Curve, Curve, Curve]:
    """Compare heads of one width, whose ‖q − k‖²/2σ² has these quantiles, with theory.

    Returns errors of the kernel, with the formula; errors of attention and shares of normalizers of
    zero or less, with the central limit theorem.
    """
    d, noises = heads[0].query.shape[-1], [kernel_noise(head) for head in heads]
    kernels, outputs, shares = Curve(), Curve(), Curve()
    for m in waves:
        found = compare(partial(draw, FavorTrigonometric, d, m, variance), heads)
        drawn = [sums(*each, m, generator) for each in zip(heads, noises, strict=True)]
        expected, formula = gather(heads, drawn), np.array([[predicted_error(exponents, m)]])
        kernels.append(Compared(kernel_errors(heads, m, variance), formula))
        outputs.append(Compared(found.errors, expected.errors))
        shares.append(Compared(found.nonpositive, expected.nonpositive))
    return kernels, outputs, shares


Noise: TypeAlias = tuple[Float[Tensor, "n n"], Float[Tensor, "n n n"]]
"""Means of the estimates by one wave, and Cholesky factors of their covariance for each query."""


def kernel_noise(head: Head) -> Noise:
    """Return the distribution of the estimates by one wave.

    With a = w·(q − k_j) and b = w·(q − k_l), cos a cos b = ½(cos(a − b) + cos(a + b)).
    """
    query, key = head.query[0, 0], head.key[0, 0]
    scale = 2 * query.shape[1] ** 0.5
    differences = query[:, None] - key
    products = differences @ differences.mT
    squares = products.diagonal(dim1=1, dim2=2)
    kernel = (-squares / scale).exp()
    both = squares[:, :, None] + squares[:, None]
    second = sum((-(both + sign * 2 * products) / scale).exp() for sign in (-1, 1)) / 2
    covariance = second - kernel[:, :, None] * kernel[:, None]
    jitter = 1e-10 * torch.eye(len(kernel), dtype=torch.float64)  # against rounding
    return kernel, torch.linalg.cholesky(covariance + jitter)


def sums(head: Head, noise: Noise, m: int, generator: torch.Generator) -> Sums:
    """Draw estimates by m waves as normal numbers; return numerators and normalizers."""
    kernel, root = noise
    drawn = draw_normal(generator, *kernel.shape, 1)
    of_waves = kernel + (root @ drawn)[..., 0] / m**0.5
    key = head.key[0, 0]
    norms = key.square().sum(-1) / (2 * key.shape[-1] ** 0.5)
    weights = (of_waves * norms.exp())[None, None]
    return weights @ head.value, weights.sum(-1)


def expectation(variance: Variance, seed: int) -> Measurements:
    """Yield the mean of many waves for a pair whose kernel is 1/e, with both variances."""
    d, exact = 16, float(np.exp(-1))
    query = torch.zeros(1, d, dtype=torch.float64)
    key = query + (2 * d**-0.5) ** 0.5
    mean, mean_of_document = (
        estimates(draw(Fourier, d, MANY, of, seed), query, key) for of in (variance, DOCUMENT)
    )
    within = 4 * (1 - exact**2) / (2 * MANY) ** 0.5
    yield equal("mean of the features where K = 1/e", mean, exact, within)
    yield informational(
        "mean of the features with w ~ N(0, σ²I), as in the course", mean_of_document
    )


def kernel_errors(heads: Sequence[Head], m: int, variance: Variance) -> Errors:
    """Return |K̂ − K|/K of the i-th query and key of each head, for all i."""
    errors = []
    for query, key, _, seed in heads:
        d = query.shape[-1]
        exact = (-(query - key).square().sum(-1) / (2 * d**0.5)).exp()
        features = draw(Fourier, d, m, variance, seed)
        errors.append(((estimates(features, query, key) - exact) / exact).abs()[0, 0])
    return torch.stack(errors).numpy()


def draw(
    kind: type[RandomFeatures], d: int, m: int, variance: Variance, seed: int
) -> RandomFeatures:
    """Draw features whose directions have this variance."""
    features = kind(d=d, features=m, orthogonal=False, seed=seed).double()
    if variance == DOCUMENT:
        features.directions *= d**0.5  # from standard deviation 1/σ to σ
    return features


def estimates(
    features: RandomFeatures, query: Float[Tensor, "*n d"], key: Float[Tensor, "*n d"]
) -> Float[Tensor, "*n"]:
    """Return φ(q)·φ(k) of each pair."""
    (of_query, _), (of_key, _) = features(query), features(key)
    kernel: Tensor = (of_query * of_key).sum(-1)
    return kernel


def with_fixed_norm(head: Head) -> Head:
    """Return a head with queries and keys rescaled to `NORM`."""
    query, key = (NORM * F.normalize(x, dim=-1) for x in (head.query, head.key))
    return head._replace(query=query, key=key)


def predicted_error(u: Float[np.ndarray, " n"], m: int) -> float:
    """Return the median of √(2/m)·sinh u·|Z|, where u has these quantiles."""
    z = norm.ppf((1 + QUANTILES) / 2)
    return float((2 / m) ** 0.5 * np.median(np.outer(np.sinh(u), z)))


def normal_exponents(d: int, spread: float) -> Float[np.ndarray, " n"]:
    """Return quantiles of u for normal q − k: those of spread²·χ²/√d."""
    return np.asarray(spread**2 * chi2.ppf(QUANTILES, d) / d**0.5)


def fixed_norm_exponents(d: int) -> Float[np.ndarray, " n"]:
    """Return quantiles of u at fixed norm.

    Those of NORM²·(1 − c)/√d, where c is the cosine of random directions.
    """
    cosine = 2 * beta.ppf(QUANTILES, (d - 1) / 2, (d - 1) / 2) - 1
    return np.asarray(NORM**2 * (1 - cosine) / d**0.5)


def standard_error(errors: Errors, of: Callable[[Errors], float] = np.median) -> float:
    """Return the standard error of a statistic by bootstrap over heads.

    The rows of a head are not independent.
    """
    random = np.random.default_rng(0)
    picks = random.integers(len(errors), size=(RESAMPLES, len(errors)))
    return float(np.std([of(errors[pick]) for pick in picks]))


def _numbers(
    name: str, prefix: str, curves: Mapping[int, Regimes], waves: Sequence[int]
) -> Measurements:
    """Yield medians, and the exponents of the number of waves."""
    for d, (unit, fixed) in curves.items():
        for m, errors in zip(waves, unit, strict=True):
            yield _expected(f"{name}, D = {d}, {m} waves", errors)
        (power, error), (expected, uncertainty) = (
            exponent(each, waves) for each in zip(*unit, strict=True)
        )
        within = 4 * math.hypot(error, uncertainty)
        yield equal(f"{prefix}exponent of the number of waves, D = {d}", power, expected, within)
        yield _expected(f"{name}, D = {d}, {waves[-1]} waves, norm {NORM:g}", fixed[-1])
    name = f"{name}, D = {max(curves)} / D = {min(curves)}"
    unit_ratio, fixed_ratio = (
        np.median(wide[-1].found) / np.median(narrow[-1].found)
        for narrow, wide in zip(curves[min(curves)], curves[max(curves)], strict=True)
    )
    yield at_least(name, unit_ratio, 1)
    yield at_most(f"{name}, norm {NORM:g}", fixed_ratio, 1)


def _expected(
    name: str, each: Compared, of: Callable[[Errors], float] = np.median, spare: float = 0.0
) -> Measurement:
    """Return a statistic that must equal the expected one within four standard errors."""
    within = 4 * math.hypot(*(standard_error(one, of) for one in each)) + spare
    return equal(name, of(each.found), of(each.expected), within)


def exponent(errors: Sequence[Errors], waves: Sequence[int]) -> tuple[float, float]:
    """Return the exponent of m in the median errors, and its standard error."""
    logs = np.log(waves) - np.log(waves).mean()
    medians = np.array([np.median(each) for each in errors])
    relative = np.array([standard_error(each) for each in errors]) / medians
    scale = np.square(logs).sum()
    return logs @ np.log(medians) / scale, float(np.linalg.norm(logs * relative)) / scale


def _errors_by_waves(
    kernels: Mapping[int, Regimes], outputs: Mapping[int, Regimes], waves: Sequence[int]
) -> Drawing:
    scales: dict[str, Any] = {"x_scale": "log", "y_scale": "log"}
    axes = {"x": "waves $m$", "x_ticks": [*waves]} | scales
    title = r"attention: $\lVert c - \mathrm{exact} \rVert / \lVert \mathrm{exact} \rVert$"
    curves, zero = _curves(outputs, waves), Line(y=1, label="output of zero")
    of_kernel = r"kernel: $|\hat K - K| / K$"
    return figure(
        chart(*_curves(kernels, waves), title=of_kernel, y="median over pairs", **axes),
        chart(*curves, zero, title=title, y="median over rows", **axes),
    )


def _curves(curves: Mapping[int, Regimes], waves: Sequence[int]) -> list[Series]:
    """Return expected and measured medians, by width."""
    drawn = []
    for i, (d, regimes) in enumerate(curves.items()):
        unit, fixed = ([map(np.median, each) for each in zip(*one, strict=True)] for one in regimes)
        drawn += [
            series(waves, unit[1], f"$D$ = {d}", color=i),
            series(waves, unit[0], style="dots", color=i),
            series(waves, fixed[1], style="dotted", color=i),
            series(waves[-1:], [*fixed[0]][-1:], style="squares", color=i),
        ]
    return drawn
