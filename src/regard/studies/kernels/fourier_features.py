"""How far random Fourier features are off."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from scipy.stats import beta, chi2, norm
from torch import Tensor

from regard.attention.feature_maps import FavorTrigonometric, Fourier, RandomFeatures
from regard.drawing import INK, panels
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    drawing,
    equal,
    informational,
    table,
)
from regard.studies.kernels.heads import Head, Outputs, compare, draw_heads
from regard.studies.study import Correction, study

WIDTHS = (4, 16, 64)
WAVES = (16, 64, 256, 1024)
FEW, MANY = 64, 20_000
"""Waves where lengths are fixed, and where an expectation is estimated."""
LENGTH = 2.0
"""Of queries and keys, where it is fixed: as of unit variance for the least of the widths."""
OUTPUT = {4: (1.5, 0.7, 0.3, 0.13), 16: (4.6, 3.0, 1.8, 0.76), 64: (7.5, 7.5, 7.5, 7.5)}
"""How far attention is off, for each width and number of waves. There is no formula: this is what
other draws gave."""
QUANTILES = (np.arange(400) + 0.5) / 400


Variance: TypeAlias = Literal["1/σ²", "σ²"]
"""Of each entry of a direction."""
DOCUMENT: Variance = "σ²"
"""The course's value."""


@study(
    asked=["eecs182-hw8 3.a.ii", "eecs182-hw8 3.a.iii"],
    question="How well do random Fourier features approximate softmax attention, depending on "
    "their number and the width of a head?",
    claim="Random features with w ~ N(0, I/σ²) estimate the Gaussian kernel. Their relative "
    "error falls with the root of their number and, for queries and keys of unit "
    "variance, grows with the width; it falls with the width only at fixed norms. At d "
    "= 64 they don't approximate softmax attention.",
    formula=r"\frac{\hat K - K}{K} \approx \sqrt{\frac{2}{m}} \, "
    r"\sinh\left(\frac{\lVert q - k \rVert^2}{2\sigma^2}\right) Z, \quad Z \sim N(0, 1)",
    corrections=[
        Correction(
            course="eecs182-hw8",
            says="that the directions are drawn from N(0, σ²I).",
            right="They are drawn from N(0, I/σ²): the mean of cos(w·(q − k)) is e^(−s²‖q − k‖²/2) "
            "where s² is the variance of w, and it is the kernel for s² = 1/σ² alone. With "
            "s² = σ² the features estimate another kernel, however many there are.",
        ),
        Correction(
            course="eecs182-hw8",
            says="that the error is the less, the larger D and D_random.",
            right="It falls with D_random as 1/√D_random, but rises with D where queries and keys "
            "have unit variance: ‖q − k‖²/2σ² grows as √D, the kernel is e to minus that, and the "
            "error of a mean of cosines stays where it is. Only at fixed lengths does it fall.",
        ),
    ],
)
def fourier_features(
    variance: Annotated[
        Variance, Meta(description="of each entry of a direction w, where σ² = √d")
    ] = "1/σ²",
    spread: Annotated[
        float, Meta(ge=0.1, le=1.5, description="standard deviation of queries' and keys' entries")
    ] = 1.0,
    draws: Annotated[
        int, Meta(ge=20, le=200, description="heads of each width, each with its own features")
    ] = 100,
    seed: Annotated[int, Meta(ge=0, lt=2**32, description="seed of the draws")] = 0,
) -> Evidence:
    """One wave gives cos(w·(q − k)), whose mean over w is the kernel K and whose variance is
    ½(1 − K²)². So the mean of m waves is off by (1 − K²)/√(2m): by about the same for all pairs
    that are far from each other, however small K is. Measured by K itself, that is √(2/m) sinh u,
    where u = ‖q − k‖²/2σ² = −ln K.

    For unit variance u is χ²/√d, with d degrees of freedom: about √d. At d = 64, K is about e^−8,
    and 16 waves are off by hundreds of times as much. Four times the waves make it half.

    Attention divides by a sum of such kernels. Where the errors are as large as the sum, it may be
    almost zero, or less: at d = 64 half of the sums are, which is what noise alone would give.
    """
    heads = {d: list(draw_heads(draws, d, spread=spread, seed=seed)) for d in WIDTHS}
    some = {d: heads[d][: draws // 2] for d in WIDTHS}  # they have pairs enough
    kernels = {(d, m): kernel_error(some[d], m, variance) for d in WIDTHS for m in WAVES}
    fixed = {d: kernel_error([level(head) for head in some[d]], FEW, variance) for d in WIDTHS}
    outputs = {(d, m): output_errors(heads[d], m, variance) for d in WIDTHS for m in WAVES}
    return Evidence(
        numbers=(
            *expectation(variance, seed),
            *_kernel_numbers(kernels, fixed, spread),
            *_output_numbers(outputs),
        ),
        figure=_drawn(kernels, fixed, outputs, spread),
        table=table(
            ["D", "waves", "output's error", "median of all rows", "normalizers ≤ 0"],
            [(d, m, of.typical, of.median, of.nonpositive) for (d, m), of in outputs.items()],
        ),
    )


def expectation(variance: Variance, seed: int) -> tuple[Measurement, Measurement]:
    """What many waves make of a pair whose kernel is 1/e, with either variance."""
    d, exact = 16, float(np.exp(-1))
    query = torch.zeros(1, d, dtype=torch.float64)
    key = query + (2 * d**-0.5) ** 0.5
    of_chosen, of_document = (
        float(estimates(draw(Fourier, d, MANY, choice, seed), query, key))
        for choice in (variance, DOCUMENT)
    )
    error = (1 - exact**2) / (2 * MANY) ** 0.5
    return (
        equal("mean of the features where K = 1/e", of_chosen, exact, 4 * error),
        informational("the same with w ~ N(0, σ²I), as the course has it", of_document),
    )


def kernel_error(heads: Sequence[Head], m: int, variance: Variance) -> float:
    """Median of |K̂ − K|/K over pairs of a head's i-th query and key."""
    errors = []
    for query, key, _, seed in heads:
        features = draw(Fourier, query.shape[-1], m, variance, seed)
        exact = (-exponents(query, key)).exp()
        errors.append(((estimates(features, query, key) - exact) / exact).abs())
    return float(torch.cat(errors).median())


def output_errors(heads: Sequence[Head], m: int, variance: Variance) -> Outputs:
    """Attention by as many waves, with the factors that make the softmax kernel of the Gaussian."""
    d = heads[0].query.shape[-1]
    return compare(lambda seed: draw(FavorTrigonometric, d, m, variance, seed), heads)


def draw(
    kind: type[RandomFeatures], d: int, m: int, variance: Variance, seed: int
) -> RandomFeatures:
    """Features whose directions have this variance."""
    features = kind(d=d, features=m, orthogonal=False, seed=seed).double()
    if variance == DOCUMENT:
        features.directions *= d**0.5  # the library's own are divided by σ; this makes it times σ
    return features


def estimates(
    features: RandomFeatures, query: Float[Tensor, "*n d"], key: Float[Tensor, "*n d"]
) -> Float[Tensor, "*n"]:
    """φ(q)·φ(k), pair by pair."""
    (of_query, _), (of_key, _) = features(query), features(key)
    kernel: Tensor = (of_query * of_key).sum(-1)
    return kernel


def exponents(query: Float[Tensor, "*n d"], key: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
    """u = ‖q − k‖²/2σ² with σ² = √d, pair by pair."""
    u: Tensor = (query - key).square().sum(-1) / (2 * query.shape[-1] ** 0.5)
    return u


def level(head: Head) -> Head:
    """The head with queries and keys of one length."""
    query, key = (LENGTH * x / x.norm(dim=-1, keepdim=True) for x in (head.query, head.key))
    return head._replace(query=query, key=key)


def predicted_error(u: Float[np.ndarray, " n"], m: int) -> float:
    """Median of √(2/m)·sinh u·|Z|, where u has these quantiles."""
    z = norm.ppf((1 + QUANTILES) / 2)
    return float((2 / m) ** 0.5 * np.median(np.outer(np.sinh(u), z)))


def normal_exponents(d: int, spread: float) -> Float[np.ndarray, " n"]:
    """Quantiles of u where q − k is normal: of spread²·χ²/√d."""
    return np.asarray(spread**2 * chi2.ppf(QUANTILES, d) / d**0.5)


def level_exponents(d: int) -> Float[np.ndarray, " n"]:
    """Quantiles of u at fixed length: of LENGTH²·(1 − c)/√d, c the cosine of random directions."""
    cosine = 2 * beta.ppf(QUANTILES, (d - 1) / 2, (d - 1) / 2) - 1
    return np.asarray(LENGTH**2 * (1 - cosine) / d**0.5)


def _kernel_numbers(
    kernels: Mapping[tuple[int, int], float], fixed: Mapping[int, float], spread: float
) -> list[Measurement]:
    numbers = [
        _about(f"kernel, D = {d}, {m} waves", measured, predicted, 0.15)
        for (d, m), measured in kernels.items()
        for predicted in [predicted_error(normal_exponents(d, spread), m)]
    ]
    numbers += [
        equal(f"power of the number of waves, D = {d}", _slope(kernels, d), -0.5, 0.05)
        for d in WIDTHS
    ]
    numbers += [
        _about(
            f"kernel, D = {d}, {FEW} waves, lengths {LENGTH:g}",
            measured,
            predicted_error(level_exponents(d), FEW),
            0.15,
        )
        for d, measured in fixed.items()
    ]
    return numbers


def _output_numbers(outputs: Mapping[tuple[int, int], Outputs]) -> list[Measurement]:
    numbers = [
        _about(f"output, D = {d}, {m} waves", outputs[d, m].typical, expected, 0.3)
        for d, row in OUTPUT.items()
        for m, expected in zip(WAVES, row, strict=True)
    ]
    numbers += [
        equal(f"share of normalizers ≤ 0, D = 64, {m} waves", outputs[64, m].nonpositive, 0.5, 0.1)
        for m in WAVES
    ]
    return numbers


def _about(name: str, measured: float, predicted: float, share: float) -> Measurement:
    """A number that may differ from its prediction by a share of it."""
    return equal(name, measured, predicted, share * predicted)


def _slope(kernels: Mapping[tuple[int, int], float], d: int) -> float:
    """The power of m that the errors follow."""
    return float(np.polyfit(np.log(WAVES), [np.log(kernels[d, m]) for m in WAVES], 1)[0])


def _drawn(
    kernels: Mapping[tuple[int, int], float],
    fixed: Mapping[int, float],
    outputs: Mapping[tuple[int, int], Outputs],
    spread: float,
) -> Drawing:
    with panels(2, height=3.6) as (figure, (left, right)):
        for i, d in enumerate(WIDTHS):
            by_formula = [predicted_error(normal_exponents(d, spread), m) for m in WAVES]
            left.plot(WAVES, by_formula, color=f"C{i}", label=f"D = {d}")
            left.plot(WAVES, [kernels[d, m] for m in WAVES], "o", color=f"C{i}", markersize=4)
            by_formula = [predicted_error(level_exponents(d), m) for m in WAVES]
            left.plot(WAVES, by_formula, ":", color=f"C{i}")
            left.plot([FEW], [fixed[d]], "s", color=f"C{i}", markersize=4)
            measured = [outputs[d, m].typical for m in WAVES]
            right.plot(WAVES, measured, "o-", color=f"C{i}", markersize=4, label=f"D = {d}")
        right.axhline(1, linestyle=":", color=INK, linewidth=1)
        right.set(ylim=(0.1, 12))
        left.set(title="kernel: |K̂ − K|/K", ylabel="median over pairs")
        right.set(title="attention: ‖c − exact‖/‖exact‖", ylabel="median over rows")
        right.legend()
        for axes in (left, right):
            axes.set(xscale="log", yscale="log", xlabel="waves m")
            axes.set_xticks(WAVES, [str(m) for m in WAVES])
            axes.minorticks_off()
        return drawing(
            figure,
            "Left: the kernel's error falls with the root of the number of waves, and is larger "
            "for wider queries and keys (lines: formula; dots: measured). Dotted, with squares: at "
            "fixed length it is the smaller, the wider they are. Right: attention's error falls at "
            "widths 4 and 16, and stays at 7 times the output at width 64.",
            name="fourier-features",
        )
