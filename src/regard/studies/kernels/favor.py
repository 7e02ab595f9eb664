"""Estimates of the Performer's random features, and their errors."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import torch
from msgspec import Meta

from regard.attention import KernelAttention, Shape, Softmax
from regard.attention.feature_maps import FavorPositive, FavorTrigonometric, RandomFeatures
from regard.studies.figure import Chart, Line, Style, chart, figure, log_chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal, informational
from regard.studies.kernels.estimates import (
    BATCH,
    KINDS,
    Errors,
    Pair,
    measure,
    orthogonal_bound,
    predicted,
)
from regard.studies.kernels.heads import Head, Outputs, compare, draw_heads, relative_errors
from regard.studies.study import EvidenceParts, Seed, study

COSINES = (-0.8, 0.0, 0.8)
WIDTHS = (4, 16, 64)
DIRECTIONS = (16, 64, 256, 1024)
SPREADS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
BySize: TypeAlias = Mapping[tuple[int, int], Outputs]
"""Outputs by width and number of directions."""
HEADS = 10
"""Number of heads of each width."""
WAVES = 128
"""Number of trigonometric directions."""
MARKERS: tuple[Style, ...] = ("dots", "squares")
"""Markers of independent and of orthogonal directions."""
Estimates: TypeAlias = Mapping[tuple[str, Pair], Errors]
"""Errors by kind of features and pair."""


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
    a = ‖x + y‖² and b = ‖x − y‖². In random heads, attention by features is compared with softmax
    attention. At unit variance a is about 2√d, 16 for d = 64: the estimates have such a heavy tail
    that almost all are far too small, and a few far too large.

    Figure. Left: relative error of the kernel. Waves have the largest error for opposite x and y,
    exponentials for equal ones. Hyperbolic features have the smallest for negative cosines, waves
    for positive ones. Lines: formula. Dots: independent directions. Squares: orthogonal directions,
    below the dots. Middle: share of queries with a sum of weights by {waves} waves of 0 or less. It
    rises to a half with the norm, earlier at larger widths (dots: measured). Right: median relative
    error of FAVOR+'s output (dots: measured). At d = 64 it is above the dotted line, the error of
    the mean of the values.

    Args:
        length: length of x = q/d^¼ and y = k/d^¼; tails are heavy above ½
        m: number of directions of an estimate
        d: width of the queries and keys of an estimate
        count: number of estimates, a multiple of 10,000
        spread: standard deviation of the entries of queries and keys in heads
        seed: seed of all draws
    """
    kernel = KernelErrors.measured(length, m, d, count, seed)
    heads = {width: list(draw_heads(HEADS, width, spread=spread, seed=seed)) for width in WIDTHS}
    outputs = {(d, n): by_features(FavorPositive, n, heads[d]) for d in WIDTHS for n in DIRECTIONS}
    means = {width: plain_mean_error(heads[width]) for width in WIDTHS}
    yield from _kernel_errors(kernel)
    yield from _notation(kernel, count)
    yield from _attention_errors(heads[64], outputs, means)
    shape = Shape(batch=1, heads=1, kv_heads=1, queries=16_384, keys=16_384, d=64, e=64)
    attend = KernelAttention(FavorPositive(d=64, features=256))
    yield informational(
        "operations of softmax / FAVOR+, 16,384 tokens, d = 64",
        Softmax().cost(shape).operations / attend.cost(shape).operations,
    )
    panels = _kernel_chart(kernel), _sums_chart(seed), _output_chart(outputs, means)
    yield figure(*panels, waves=WAVES)


class KernelErrors(NamedTuple):
    """Errors of estimates of the kernel by m directions, for x and y of one length."""

    length: float
    m: int
    d: int
    pairs: Mapping[float, Pair]
    """x and y by their cosine."""
    independent: Estimates
    orthogonal: Estimates

    @classmethod
    def measured(cls, length: float, m: int, d: int, count: int, seed: int) -> "KernelErrors":
        """Measure both kinds of directions, with the same seed."""
        pairs = {cosine: Pair.of(length, cosine) for cosine in COSINES}
        independent, orthogonal = (
            measure(list(pairs.values()), d=d, m=m, orthogonal=each, count=count, seed=seed)
            for each in (False, True)
        )
        return cls(length, m, d, pairs, independent, orthogonal)


def by_features(kind: type[RandomFeatures], directions: int, heads: Sequence[Head]) -> Outputs:
    """Return the errors of attention by features with orthogonal directions."""
    d = heads[0].query.shape[-1]
    return compare(lambda seed: kind(d=d, features=directions, seed=seed), heads)


def plain_mean_error(heads: Sequence[Head]) -> float:
    """Return the median error of equal weights for all keys, as a baseline."""
    errors = [
        relative_errors(head.value.mean(2, keepdim=True), Softmax()(*head[:3])) for head in heads
    ]
    return float(torch.cat(errors).median())


def _kernel_errors(kernel: KernelErrors) -> Measurements:
    for name in KINDS:
        for cosine, pair in kernel.pairs.items():
            errors, expected = kernel.independent[name, pair], predicted(name, pair, kernel.m)
            title, within = f"MSE of {name} features, cosine {cosine:g}", 4 * errors.uncertainty
            yield equal(title, errors.square, expected, within)
    for cosine, pair in kernel.pairs.items():
        errors = kernel.orthogonal["positive", pair]
        bound = orthogonal_bound(pair, kernel.m, kernel.d) + 4 * errors.uncertainty
        title = f"MSE of orthogonal positive features, cosine {cosine:g}"
        yield at_most(title, errors.square, bound)


def _notation(kernel: KernelErrors, count: int) -> Measurements:
    """Compare the products with the kernel, also with the formulas in the course."""
    d, pair = kernel.d, kernel.pairs[COSINES[-1]]
    exact, errors = pair.kernel, kernel.independent["positive", pair]
    unscaled = exact ** (d**0.5) / d**0.5
    within = 4 * (errors.square / count) ** 0.5 / exact
    yield equal("mean of φ(q)·φ(k) / kernel", errors.mean / exact, 1, within)
    exponential = math.exp(errors.mean) / exact
    yield informational("e^(mean of φ(q)·φ(k)) / kernel, the formula in the course", exponential)
    yield informational("(e^(q·k)/√d) / kernel, the formula in the course", unscaled / exact)


def _attention_errors(
    heads: Sequence[Head], outputs: BySize, means: Mapping[int, float]
) -> Measurements:
    """Yield shares of sums of weights of 0 or less, and errors compared with equal weights."""
    quarter = [head._replace(query=head.query / 4, key=head.key / 4) for head in heads]
    unit, short = (
        by_features(FavorTrigonometric, WAVES, some).negative_share for some in (heads, quarter)
    )
    positive = max(of.negative_share for of in outputs.values())
    name = "share of sums of weights ≤ 0"
    yield at_least(f"{name}, {WAVES} waves, d = 64", unit, 0.25)
    yield at_most(f"{name}, {WAVES} waves, d = 64, a quarter of the length", short, 0)
    yield at_most(f"{name}, positive features, largest", positive, 0)
    name = "error of FAVOR+ / error of the mean of the values"
    for n in DIRECTIONS:
        ratio = outputs[64, n].median / means[64]
        yield at_least(f"{name}, d = 64, {n} directions", ratio, 1)


def _sums_chart(seed: int) -> Chart:
    """Return the share of sums of trigonometric weights of 0 or less, by norm and width."""

    def share(d: int, spread: float) -> float:
        heads = list(draw_heads(HEADS, d, spread=spread, seed=seed))
        return by_features(FavorTrigonometric, WAVES, heads).negative_share

    lines = [
        series(SPREADS, [share(d, spread) for spread in SPREADS], f"$d$ = {d}", "line with dots")
        for d in WIDTHS
    ]
    return chart(*lines, title="sums of weights ≤ 0", x="standard deviation of $q$ and $k$")


def _output_chart(outputs: BySize, means: Mapping[int, float]) -> Chart:
    return log_chart(
        DIRECTIONS,
        {f"$d$ = {d}": [outputs[d, n].median for n in DIRECTIONS] for d in WIDTHS},
        lines=[Line(y=means[d], color=i) for i, d in enumerate(WIDTHS)],
        title="FAVOR+ against softmax",
        x="directions",
        y_scale="linear",
        y_limits=(0, None),
    )


def _kernel_chart(kernel: KernelErrors) -> Chart:
    """Return the relative error of each kind of features against the cosine of x and y."""
    m, pairs, curves = kernel.m, kernel.pairs.values(), []
    cosines = [i / 20 - 1 for i in range(41)]
    along = [Pair.of(kernel.length, cosine) for cosine in cosines]
    for i, name in enumerate(KINDS):
        formula = [max(predicted(name, pair, m), 1e-9) ** 0.5 / pair.kernel for pair in along]
        curves.append(series(cosines, formula, name, color=i))
        for style, errors in zip(MARKERS, (kernel.independent, kernel.orthogonal), strict=True):
            measured = [errors[name, pair].square ** 0.5 / pair.kernel for pair in pairs]
            curves.append(series(COSINES, measured, style=style, color=i))
    title, x = f"relative error of {m} directions", "cosine of $x$ and $y$"
    return chart(*curves, title=title, x=x, y_scale="log", y_limits=(1e-3, None))
