"""Estimates of the softmax kernel by the Performer's random features, and their errors.

x = q/d^¼ and y = k/d^¼ throughout, so that the kernel is SM = e^(x·y). With a = ‖x + y‖² and
b = ‖x − y‖², x·y = (a − b)/4 and ‖x‖² + ‖y‖² = (a + b)/2, so that everything depends on a and b.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Annotated, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import KernelAttention, Shape, Softmax
from regard.attention.feature_maps import (
    FavorHyperbolic,
    FavorPositive,
    FavorTrigonometric,
    RandomFeatures,
    draw_directions,
)
from regard.studies.figure import Chart, Style, chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal, informational
from regard.studies.kernels.heads import Head, Outputs, compare, draw_heads, gather
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import mean_error

KINDS: dict[str, type[RandomFeatures]] = {
    "trigonometric": FavorTrigonometric,
    "positive": FavorPositive,
    "hyperbolic": FavorHyperbolic,
}
COSINES = (-0.8, 0.0, 0.8)
DIRECTIONS = (16, 64, 256, 1024)
BATCH = 10_000
"""Number of estimates per draw of directions."""
HEADS, WIDTH = 10, 64
"""Number and width of heads."""
WAVES = 128
"""Number of trigonometric directions."""


@study()
def favor(
    length: Annotated[float, Meta(ge=0.05, le=1.5)] = 0.5,
    m: Annotated[int, Meta(ge=2, le=8)] = 8,
    d: Annotated[int, Meta(ge=8, le=16)] = 8,
    count: Annotated[int, Meta(ge=20_000, le=400_000, multiple_of=BATCH)] = 200_000,
    spread: Annotated[float, Meta(ge=0.1, le=1.5)] = 1.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do the Performer's random features estimate, why are they positive, and what is the
    advantage of orthogonal directions?

    All estimate e^(q·k/√d), with the errors proved in the paper; orthogonal directions have smaller
    errors. Sums of trigonometric weights may be negative, those of positive features never are. For
    heads of width 64 and unit variance 1,024 directions don't suffice: positive features are
    further from softmax attention than the mean of the values.

    $$ \mathrm{MSE}_{+} = \frac{e^a (1 - e^{-a})}{m} \mathrm{SM}^2, \quad
    \mathrm{MSE}_{\mathrm{hyp}} = \frac{1 - e^{-a}}{2} \mathrm{MSE}_{+}, \quad
    \mathrm{MSE}_{\mathrm{trig}} = \frac{e^a (1 - e^{-b})^2}{2m} \mathrm{SM}^{-2} $$

    The kernel SM = e^(x·y) of x and y of one length is estimated many times at three cosines, with
    a = ‖x + y‖² and b = ‖x − y‖². Attention by features is compared with softmax in random heads.

    Figure. Relative error of the kernel. Waves have the largest error for opposite x and y,
    exponentials for equal ones. Lines: formula. Dots: independent directions. Squares: orthogonal
    directions, below the dots.

    Args:
        length: length of x = q/d^¼ and y = k/d^¼; tails are heavy above ½
        m: number of directions of an estimate
        d: width of the queries and keys of an estimate
        count: number of estimates, a multiple of 10,000
        spread: standard deviation of the entries of queries and keys in heads
        seed: seed of all draws
    """
    pairs = {cosine: Pair.of(length, cosine) for cosine in COSINES}
    independent, orthogonal = (
        measure(pairs.values(), d=d, m=m, orthogonal=each, count=count, seed=seed)
        for each in (False, True)
    )
    for name, (cosine, pair) in product(KINDS, pairs.items()):
        errors, title = independent[name, pair], f"MSE of {name} features, cosine {cosine:g}"
        yield equal(title, errors.square, predicted(name, pair, m), 4 * errors.uncertainty)
    for cosine, pair in pairs.items():
        errors, title = orthogonal["positive", pair], "MSE of orthogonal positive features"
        bound = orthogonal_bound(pair, m, d) + 4 * errors.uncertainty
        yield at_most(f"{title}, cosine {cosine:g}", errors.square, bound)
    similar = pairs[COSINES[-1]]
    yield from _formulas(independent["positive", similar], similar.kernel, d, count)
    yield from _attention_errors(list(draw_heads(HEADS, WIDTH, spread=spread, seed=seed)))
    shape = Shape(batch=1, heads=1, kv_heads=1, queries=16_384, keys=16_384, d=64, e=64)
    attend = KernelAttention(FavorPositive(d=64, features=256))
    yield informational(
        "operations of softmax / FAVOR+, 16,384 tokens, d = 64",
        Softmax().cost(shape).operations / attend.cost(shape).operations,
    )
    yield _kernel_chart(length, m, {"dots": independent, "squares": orthogonal})


class Pair(NamedTuple):
    """x and y, up to a rotation."""

    a: float
    b: float

    @staticmethod
    def of(length: float, cosine: float) -> "Pair":
        """Return two vectors of this length."""
        return Pair(2 * length**2 * (1 + cosine), 2 * length**2 * (1 - cosine))

    @property
    def kernel(self) -> float:
        """SM = e^(x·y)."""
        return math.exp((self.a - self.b) / 4)

    @property
    def shrunk(self) -> float:
        """e^(−(‖x‖² + ‖y‖²)/2)."""
        return math.exp(-(self.a + self.b) / 4)

    def vectors(self, d: int) -> tuple[Float[Tensor, "1 d"], Float[Tensor, "1 d"]]:
        """Return a query and a key with this pair's x and y."""
        total, difference = torch.zeros(2, 1, d, dtype=torch.float64)
        total[0, 0], difference[0, 1] = self.a**0.5, self.b**0.5
        scale = d**0.25 / 2
        return scale * (total + difference), scale * (total - difference)


class Errors(NamedTuple):
    """Errors of many independent estimates of one kernel."""

    mean: float
    """Mean of the estimates."""
    square: float
    """Mean squared error."""
    uncertainty: float
    """Standard error of `square`."""


Estimates: TypeAlias = dict[tuple[str, Pair], Errors]
"""Errors by kind of features and pair."""


def measure(
    pairs: Iterable[Pair], *, d: int, m: int, orthogonal: bool, count: int, seed: int
) -> Estimates:
    """Return errors of `count` estimates by each kind of features, with m ≤ d directions each.

    All kinds and pairs share the draws. An estimate uses the first m directions of a block of d;
    blocks are independent.
    """
    estimates: dict[tuple[str, Pair], list[Tensor]] = {each: [] for each in product(KINDS, pairs)}
    for own in np.random.SeedSequence(seed).generate_state(count // BATCH):
        directions = draw_directions(BATCH * d, d, orthogonal=orthogonal, seed=int(own))
        for (name, pair), found in estimates.items():
            each = by_direction(KINDS[name], directions, *pair.vectors(d))
            found.append(each.view(BATCH, d)[:, :m].mean(1))
    return {key: errors_of(torch.cat(found), key[1].kernel) for key, found in estimates.items()}


def by_direction(
    kind: type[RandomFeatures],
    directions: Float[Tensor, "directions d"],
    query: Float[Tensor, "1 d"],
    key: Float[Tensor, "1 d"],
) -> Float[Tensor, " directions"]:
    """Return the estimate of each single direction; φ(q)·φ(k) is their mean."""
    features = kind(d=directions.shape[1], features=1)
    features.directions = directions
    (of_query, query_scale), (of_key, key_scale) = features(query), features(key)
    products = (of_query * of_key).view(-1, len(directions)).sum(0)
    each: Tensor = len(directions) * products * (query_scale + key_scale).exp()
    return each


def errors_of(estimates: Float[Tensor, " count"], exact: float) -> Errors:
    """Return the errors of estimates."""
    squares = (estimates - exact).square()
    return Errors(float(estimates.mean()), float(squares.mean()), mean_error(squares))


def predicted(name: str, pair: Pair, m: int) -> float:
    """Return the mean squared error of m independent directions.

    By lemma 2 of Choromanski et al., 2021.
    """
    factor, a, b = math.exp(pair.a), pair.a, pair.b
    if name == "trigonometric":
        return factor * pair.kernel**-2 * (1 - math.exp(-b)) ** 2 / (2 * m)
    positive = factor * pair.kernel**2 * (1 - math.exp(-a)) / m
    return positive if name == "positive" else (1 - math.exp(-a)) / 2 * positive


def orthogonal_bound(pair: Pair, m: int, d: int) -> float:
    """Return a bound of the mean squared error of positive features, m ≤ d orthogonal directions.

    By theorem 2 of the same paper.
    """
    gain = 2 * (m - 1) / (m * (d + 2)) * (pair.kernel - pair.shrunk) ** 2
    return predicted("positive", pair, m) - gain


def _formulas(errors: Errors, exact: float, d: int, count: int) -> Measurements:
    """Compare the products with the kernel, also with the formulas in the course."""
    within = 4 * (errors.square / count) ** 0.5 / exact
    yield equal("mean of φ(q)·φ(k) / kernel", errors.mean / exact, 1, within)
    exponential, outside = math.exp(errors.mean) / exact, exact ** (d**0.5) / d**0.5 / exact
    yield informational("e^(mean of φ(q)·φ(k)) / kernel, the formula in the course", exponential)
    yield informational("(e^(q·k)/√d) / kernel, the formula in the course", outside)


def _kernel_chart(length: float, m: int, found: Mapping[Style, Estimates]) -> Chart:
    """Return the relative error of each kind of features against the cosine of x and y."""
    cosines, curves = [i / 20 - 1 for i in range(41)], []
    along, pairs = ([Pair.of(length, cosine) for cosine in each] for each in (cosines, COSINES))
    for i, name in enumerate(KINDS):
        formula = [max(predicted(name, pair, m), 1e-9) ** 0.5 / pair.kernel for pair in along]
        curves.append(series(cosines, formula, name, color=i))
        for style, errors in found.items():
            measured = [errors[name, pair].square ** 0.5 / pair.kernel for pair in pairs]
            curves.append(series(COSINES, measured, style=style, color=i))
    title, x = f"relative error of {m} directions", "cosine of $x$ and $y$"
    return chart(*curves, title=title, x=x, y_scale="log", y_limits=(1e-3, None))


def _attention_errors(heads: Sequence[Head]) -> Measurements:
    """Yield shares of sums of weights of 0 or less, and errors compared with equal weights."""

    def outputs(kind: type[RandomFeatures], directions: int) -> Outputs:
        return compare(lambda seed: kind(d=WIDTH, features=directions, seed=seed), heads)

    waves = outputs(FavorTrigonometric, WAVES).nonpositive.mean()
    positive = {n: outputs(FavorPositive, n) for n in DIRECTIONS}
    most = max(of.nonpositive.mean() for of in positive.values())
    name = "share of sums of weights ≤ 0"
    yield at_least(f"{name}, {WAVES} waves, d = 64", waves, 0.25)
    yield at_most(f"{name}, positive features, largest", most, 0)
    equal_weights = [(head.value.mean(2, keepdim=True), torch.ones(1, 1, 1)) for head in heads]
    mean = np.median(gather(heads, equal_weights).errors)
    name = "error of FAVOR+ / error of the mean of the values"
    for n, of in positive.items():
        yield at_least(f"{name}, d = 64, {n} directions", np.median(of.errors) / mean, 1)
