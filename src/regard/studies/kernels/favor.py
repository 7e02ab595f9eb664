"""What the Performer's features estimate, and how well."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeAlias

import torch
from msgspec import Meta

from regard.attention import KernelAttention, Shape, Softmax
from regard.attention.feature_maps import FavorPositive, FavorTrigonometric, RandomFeatures
from regard.studies.figure import Chart, Line, Style, chart, figure, log_chart, series
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    equal,
    informational,
)
from regard.studies.kernels.estimates import (
    BATCH,
    KINDS,
    Errors,
    Pair,
    measure,
    orthogonal_bound,
    predicted,
)
from regard.studies.kernels.heads import Head, Outputs, compare, draw_heads, relative
from regard.studies.study import Seed, study

COSINES = (-0.8, 0.0, 0.8)
WIDTHS = (4, 16, 64)
DIRECTIONS = (16, 64, 256, 1024)
SPREADS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
BySize: TypeAlias = Mapping[tuple[int, int], Outputs]
"""Outputs by width and number of directions."""
HEADS = 10
"""Heads of each kind."""
WAVES = 128
"""Trigonometric directions."""
MARKERS: tuple[Style, ...] = ("dots", "squares")
"""Of independent and of orthogonal directions."""


@study()
def favor(
    length: Annotated[float, Meta(ge=0.05, le=1.5)] = 0.5,
    m: Annotated[int, Meta(ge=2, le=8)] = 8,
    d: Annotated[int, Meta(ge=8, le=16)] = 8,
    count: Annotated[int, Meta(ge=20_000, le=400_000, multiple_of=BATCH)] = 200_000,
    spread: Annotated[float, Meta(ge=0.1, le=1.5)] = 1.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do the Performer's random features estimate, why must they be positive, and what do
    orthogonal directions gain?

    All estimate e^(q·k/√d), with the errors that the paper proves; orthogonal directions have
    smaller ones. Trigonometric weights may add up to less than zero, positive ones never do. For
    heads of width 64 and unit variance no common number of directions suffices: positive features
    are further from softmax attention than the mean of the values is.

    $$ \mathrm{MSE}_{+} = \frac{e^a (1 - e^{-a})}{m} \mathrm{SM}^2, \quad
    \mathrm{MSE}_{\mathrm{hyp}} = \frac{1 - e^{-a}}{2} \mathrm{MSE}_{+}, \quad
    \mathrm{MSE}_{\mathrm{trig}} = \frac{e^a (1 - e^{-b})^2}{2m} \mathrm{SM}^{-2} $$

    With features φ, the products φ(q)·φ(k) stand in for e^(q·k/√d). So all queries share the sum
    Σ φ(k_j) v_jᵀ, and N tokens take N·m·d operations in place of N²·d.

    Waves are exact where q = k, and poor where the kernel is small: their error is the same
    everywhere, and a weight that should be almost 0 may be negative, and so may the sum that
    attention divides by. Exponentials e^(w·x − ‖x‖²/2) are positive, and exact where the kernel is
    smallest. Their errors follow its size, and hyperbolic pairs e^(±w·x) have less than half.
    Orthogonal directions don't look twice where they have looked before.

    But all of this has e^a in it, a = ‖x + y‖². At unit variance a is about 2√d, 16 for d = 64: the
    estimate's tail is so heavy that almost all draws are far too small, and a few far too large. A
    model that is trained with such features learns to live with short queries and keys.

    Figure. Left: relative error of the kernel. Waves are worst where x and y are opposite,
    exponentials where they agree; hyperbolic ones have the least nearly everywhere. Lines: formula;
    dots: independent directions; squares: orthogonal, below. Middle: the share of queries whose
    weights by {waves} waves add up to 0 or less rises to a half with their norm, sooner at larger
    widths (dots: measured). Right: median relative error of FAVOR+'s output (dots: measured); at d
    = 64 it is above the dotted line, the error of the mean of the values.

    Args:
        length: of x = q/d^¼ and y = k/d^¼; tails are heavy above ½
        m: directions of an estimate
        d: width of its queries and keys
        count: estimates, a multiple of 10 000
        spread: standard deviation of the entries in whole heads
        seed: seed of all draws
    """
    pairs = [Pair.of(length, cosine) for cosine in COSINES]
    draws = Draws(
        *(measure(pairs, d=d, m=m, orthogonal=o, count=count, seed=seed) for o in (False, True))
    )
    heads = {width: list(draw_heads(HEADS, width, spread=spread, seed=seed)) for width in WIDTHS}
    outputs = {
        (width, n): by_features(FavorPositive, n, of)
        for width, of in heads.items()
        for n in DIRECTIONS
    }
    means = {width: plain_mean_error(heads[width]) for width in WIDTHS}
    shares = {width: [negative_share(width, size, seed) for size in SPREADS] for width in WIDTHS}
    yield from _of_kernels(pairs, draws, m, d)
    yield from _of_notation(pairs[-1], draws.independent["positive", pairs[-1]], d, count)
    yield from _of_signs(heads[64], outputs)
    yield from _of_outputs(outputs, means)
    yield informational(
        "operations of softmax over those of FAVOR+, 16 384 tokens, d = 64", saved()
    )
    lines = [series(SPREADS, row, f"d = {d}", "line with dots") for d, row in shares.items()]
    yield figure(
        _kernel_chart(length, m, pairs, draws),
        chart(*lines, title="sums of weights ≤ 0", x="standard deviation of q and k"),
        log_chart(
            DIRECTIONS,
            {f"d = {d}": [outputs[d, n].median for n in DIRECTIONS] for d in WIDTHS},
            lines=[Line(y=means[d], color=i) for i, d in enumerate(WIDTHS)],
            title="FAVOR+ against softmax",
            x="directions",
            y_scale="linear",
            y_limits=(0, None),
        ),
        waves=WAVES,
    )


class Draws(NamedTuple):
    """Errors by kind of features and pair."""

    independent: Mapping[tuple[str, Pair], Errors]
    orthogonal: Mapping[tuple[str, Pair], Errors]


def by_features(kind: type[RandomFeatures], directions: int, heads: Sequence[Head]) -> Outputs:
    """Attention by as many orthogonal directions."""
    d = heads[0].query.shape[-1]
    return compare(lambda seed: kind(d=d, features=directions, seed=seed), heads)


def plain_mean_error(heads: Sequence[Head]) -> float:
    """The same where all weights are equal, whatever the query: a guess to be beaten."""
    errors = [
        relative(head.value.mean(2, keepdim=True), Softmax()(head.query, head.key, head.value))
        for head in heads
    ]
    return float(torch.cat(errors).median())


def negative_share(d: int, spread: float, seed: int) -> float:
    """How many queries' trigonometric weights add up to zero or less."""
    heads = list(draw_heads(HEADS, d, spread=spread, seed=seed))
    return by_features(FavorTrigonometric, WAVES, heads).negative_share


def saved() -> float:
    """How many operations softmax attention takes for one of FAVOR+."""
    shape = Shape(batch=1, heads=1, kv_heads=1, queries=16_384, keys=16_384, d=64, e=64)
    attend = KernelAttention(FavorPositive(d=64, features=256))
    return Softmax().cost(shape).operations / attend.cost(shape).operations


def _of_kernels(pairs: Sequence[Pair], draws: Draws, m: int, d: int) -> Iterator[Measurement]:
    at = [(f"cosine {cosine:g}", pair) for cosine, pair in zip(COSINES, pairs, strict=True)]
    for name in KINDS:
        for cosine, pair in at:
            errors, expected = draws.independent[name, pair], predicted(name, pair, m)
            within = 4 * errors.uncertainty
            yield equal(f"MSE of {name} features, {cosine}", errors.square, expected, within)
    for cosine, pair in at:
        errors = draws.orthogonal["positive", pair]
        bound = orthogonal_bound(pair, m, d) + 4 * errors.uncertainty
        yield at_most(f"MSE of orthogonal positive features, {cosine}", errors.square, bound)


def _of_notation(pair: Pair, of: Errors, d: int, count: int) -> Iterator[Measurement]:
    """What the products are of the kernel; what they would be as the document writes them."""
    exact = pair.kernel
    unscaled = exact ** (d**0.5) / d**0.5
    within = 4 * (of.square / count) ** 0.5 / exact
    yield equal("mean of φ(q)·φ(k), over the kernel", of.mean / exact, 1, within)
    twice = math.exp(of.mean) / exact
    yield informational("e to that mean, over the kernel, as the course has it", twice)
    yield informational("e^(q·k)/√d over the kernel, as the course has it", unscaled / exact)


def _of_signs(heads: Sequence[Head], outputs: BySize) -> Iterator[Measurement]:
    quarter = [head._replace(query=head.query / 4, key=head.key / 4) for head in heads]
    unit, short = (
        by_features(FavorTrigonometric, WAVES, some).negative_share for some in (heads, quarter)
    )
    most = max(of.negative_share for of in outputs.values())
    yield at_least(f"sums of weights ≤ 0, {WAVES} waves, d = 64", unit, 0.25)
    yield at_most("the same, queries and keys a quarter as long", short, 0)
    yield at_most("the same of positive features, at most", most, 0)


def _of_outputs(outputs: BySize, means: Mapping[int, float]) -> Iterator[Measurement]:
    ratios = {(d, n): of.median / means[d] for (d, n), of in outputs.items()}
    for n in DIRECTIONS:
        name = f"error of FAVOR+, d = 64, {n} directions, over the mean's"
        yield at_least(name, ratios[64, n], 1)
    most = DIRECTIONS[-1]
    for d in WIDTHS[:-1]:
        yield informational(f"the same, d = {d}, {most} directions", ratios[d, most])


def _kernel_chart(length: float, m: int, pairs: Sequence[Pair], draws: Draws) -> Chart:
    """Relative error of each kind of features against the cosine of x and y."""
    cosines = [i / 20 - 1 for i in range(41)]
    along = [Pair.of(length, cosine) for cosine in cosines]
    curves = []
    for i, name in enumerate(KINDS):
        formula = [max(predicted(name, pair, m), 1e-9) ** 0.5 / pair.kernel for pair in along]
        curves.append(series(cosines, formula, name, color=i))
        for style, errors in zip(MARKERS, draws, strict=True):
            measured = [errors[name, pair].square ** 0.5 / pair.kernel for pair in pairs]
            curves.append(series(COSINES, measured, style=style, color=i))
    title, x = f"relative error of {m} directions", "cosine of x and y"
    return chart(*curves, title=title, x=x, y_scale="log", y_limits=(1e-3, None))
