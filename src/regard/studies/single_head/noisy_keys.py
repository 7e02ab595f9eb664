"""Averages of two values by one head and by two, if keys are drawn around orthonormal means.

Values are unit vectors, so that the output c equals the weights.
"""

import math
from typing import Annotated, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from scipy.stats import norm
from torch import Tensor

from regard.attention import Softmax
from regard.studies.figure import Line, chart, figure, histogram, series
from regard.studies.finding import Measurement, at_least, at_most, equal
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, mean_error, share_error

NoisyKeys: TypeAlias = Float[Tensor, "draws n n"]
Outputs: TypeAlias = Float[Tensor, "draws n"]
"""The output c of each draw: a weight for each value."""
A, B = 0, 1
"""Indices of k_a and k_b."""

Keys: TypeAlias = Annotated[int, Meta(ge=3, le=48, description="number of keys")]
Length: TypeAlias = Annotated[
    float, Meta(gt=0, le=10_000, description="length of a query along each mean")
]
Noise: TypeAlias = Annotated[
    float, Meta(gt=0, le=1, description="α, the variance of each key in every direction")
]
Stretch: TypeAlias = Annotated[
    float, Meta(gt=0, le=4, description="variance of k_a along its mean, in addition to α")
]
Draws: TypeAlias = Annotated[int, Meta(ge=100, le=8000, description="number of draws of all keys")]


@study()
def noisy_keys_one_head(
    n: Keys = 10,
    t: Length = 8.0,
    alpha: Noise = 1e-6,
    stretch: Stretch = 0.5,
    draws: Draws = 4000,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Does one head still average two values if the keys are noisy?

    Yes, if ln n ≪ t ≪ 1/√α. But if the norm of k_a varies, c ≈ s·v_a + (1 − s)·v_b with s =
    sigmoid(t(γ − 1)): most draws give nearly v_a or nearly v_b.

    $$ q = t (\mu_a + \mu_b), \quad k_a \approx \gamma \mu_a, \quad s \to \frac{1}{1 + e^{-t (\gamma
    - 1)}} $$

    The noise changes each score by t√(2α).

    Figure. Left: equal noise in all keys. The average is accurate for queries between ln n and 1/√α
    (dotted), and inaccurate for shorter and longer ones. Dots: measured. Right: varying norm of
    k_a. Most values of s at t = {t:g} are near 0 or near 1.
    """
    equal_noise, varying = (noisy_keys(draws, n, alpha, extra, seed) for extra in (0.0, stretch))
    query, deviation = query_along(n, t, A, B), t * math.sqrt(2 * alpha)
    noise, error = (equal_noise @ query - query).std(), deviation / math.sqrt(2 * draws * n)
    name = "standard deviation of the scores, equal noise"
    yield equal(name, noise, deviation, within=4 * error)
    outside = weight_outside(outputs(equal_noise, query)).mean()
    yield at_most("mean weight outside ½(v_a + v_b), equal noise", outside, 0.02)
    s = outputs(varying[:, [A, B]], query)[:, 0]  # without the other keys
    # γ is taken from k_a. Its noise along μ_b and the noise of k_b remain, with variance 3α, and
    # the slope of the sigmoid is at most ¼.
    within = 6 / 4 * t * math.sqrt(3 * alpha) + 1e-12
    limit, chosen = torch.sigmoid(t * (varying[:, A, A] - 1)), (s - 0.5).abs() > 0.4
    yield at_most("largest |s − sigmoid(t(γ − 1))|", (s - limit).abs().max(), within)
    name = "share of draws with s below 0.1 or above 0.9"
    yield share(name, chosen, chosen_share(t, alpha, stretch))
    yield at_least(f"{name}, required for “most”", chosen.double().mean(), 0.5)
    few, lengths = equal_noise[:500], np.geomspace(0.5, 10_000, 30)
    errors = [weight_outside(outputs(few, query_along(n, x, A, B))).mean() for x in lengths]
    by_length = chart(
        series(lengths, errors, style="line with dots"),
        Line(x=math.log(n), label=r"$\ln n$"),
        Line(x=1 / math.sqrt(alpha), label=r"$1 / \sqrt{\alpha}$"),
        title="equal noise",
        x="$t$",
        y="weight outside the average",
        x_scale="log",
        y_scale="log",
    )
    bins, axes = [i / 20 for i in range(21)], {"x": "$s$, the share of $v_a$", "y": "draws"}
    shares = chart(histogram(s, bins, color=1), title="varying norm of $k_a$", **axes)
    yield figure(by_length, shares)


def chosen_share(t: float, alpha: float, stretch: float) -> float:
    """Return the probability that s is below 0.1 or above 0.9, by the formula.

    The difference of the two scores is normal, with variance t²(stretch + 4α).
    """
    return 2 * float(norm.cdf(-math.log(9) / (t * math.sqrt(stretch + 4 * alpha))))


@study()
def noisy_keys_two_heads(
    n: Keys = 10,
    t: Length = 8.0,
    alpha: Noise = 1e-6,
    stretch: Stretch = 0.5,
    draws: Draws = 4000,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What is the advantage of two heads over one if the norm of a key varies?

    With q₁ = tμ_a and q₂ = tμ_b the output is near ½(v_a + v_b) in four of five draws, and its
    variance is at most a quarter of that of one head.

    $$ P(\alpha_a > \tfrac{1}{2}) = \Phi\left(\sqrt{2} \left(1 - \frac{\ln(n - 1)}{t}\right)\right)
    $$

    The same draws are given to one head and to two.

    Figure. Histograms of the weight outside the average. With one head most draws are near ½, with
    two heads most are near 0.
    """
    equal_noise, varying = (noisy_keys(draws, n, alpha, extra, seed) for extra in (0.0, stretch))
    one, two = outputs(varying, query_along(n, t, A, B)), two_heads(varying, t)
    outside = weight_outside(two_heads(equal_noise, t)).mean()
    yield at_most("mean weight outside ½(v_a + v_b), equal noise", outside, 0.02)
    finds = outputs(varying, query_along(n, t, A))[:, A] > 0.5
    limit, positive = found_share(n, math.inf, stretch), varying[:, A, A] > 0
    yield share("share of draws with α_a > ½", finds, found_share(n, t, stretch))
    yield share("share of draws with α_a > ½ as t → ∞ (γ > 0)", positive, limit)
    near = (weight_outside(two) < 0.25).double().mean()
    name = "share of draws with less than a quarter of the weight outside, two heads"
    yield at_least(name, near, 0.8)
    gamma = gamma_quantiles(stretch)
    first, second, both = (
        without_noise(gamma, query_along(n, t, *keys)) for keys in ((A,), (B,), (A, B))
    )
    yield variance("variance of c, one head", one, both)
    yield variance("variance of c, two heads", two, (first + second) / 2)
    ratio = distances(two).mean() / distances(one).mean()
    yield at_most("variance of two heads / variance of one", ratio, 0.25)
    bins, heads = [i / 20 for i in range(13)], {"one head": one, "two heads": two}
    counts = [histogram(weight_outside(c), bins, name) for name, c in heads.items()]
    yield chart(*counts, x="weight outside the average", y="draws")


def two_heads(keys: NoisyKeys, t: float) -> Outputs:
    """Return ½(c₁ + c₂) of each draw."""
    first, second = (outputs(keys, query_along(keys.shape[-1], t, key)) for key in (A, B))
    return (first + second) / 2


def found_share(n: int, t: float, stretch: float) -> float:
    """Return the probability that the first head gives v_a more than half the weight, as α → 0."""
    return float(norm.cdf((1 - math.log(n - 1) / t) / math.sqrt(stretch)))


def distances(c: Outputs) -> Float[Tensor, " draws"]:
    """Return ‖c − mean c‖² of each draw; their mean is the variance of c."""
    return (c - c.mean(0)).square().sum(-1)


def variance(name: str, c: Outputs, predicted: Outputs) -> Measurement:
    """Return the variance of c: the formula's within four standard errors and one draw."""
    squares, expected = distances(c), distances(predicted).mean()
    within = 4 * mean_error(squares) + 1 / len(squares)
    return equal(name, squares.mean(), expected, within=within)


def noisy_keys(draws: int, n: int, alpha: float, stretch: float, seed: int) -> NoisyKeys:
    """Draw k_i ~ N(μ_i, αI), but k_a ~ N(μ_a, αI + stretch·μ_a μ_aᵀ); the means are unit vectors.

    With the same seed, other variances rescale the same noise.
    """
    generator = torch.Generator().manual_seed(seed)
    noise, along = draw_normal(generator, draws, n, n), draw_normal(generator, draws)
    keys = math.sqrt(alpha) * noise + torch.eye(n, dtype=torch.float64)
    keys[:, A, A] += math.sqrt(stretch) * along
    return keys


def query_along(n: int, t: float, *means: int) -> Float[Tensor, " n"]:
    """Return the query of length t along each of some means."""
    query = torch.zeros(n, dtype=torch.float64)
    query[list(means)] = t
    return query


def outputs(
    keys: Float[Tensor, "draws keys n"], query: Float[Tensor, " n"]
) -> Float[Tensor, "draws keys"]:
    """Return c of each draw."""
    queries = query.expand(len(keys), 1, 1, len(query))
    return Softmax(scaled=False).weights(queries, keys[:, None])[:, 0, 0]


def without_noise(gamma: Float[Tensor, " draws"], query: Float[Tensor, " n"]) -> Outputs:
    """Return the formula's c as α → 0: k_a = γμ_a, and every other key is its mean."""
    scores = query.repeat(len(gamma), 1)
    scores[:, A] *= gamma
    return scores.softmax(-1)


def gamma_quantiles(stretch: float, count: int = 20_001) -> Float[Tensor, " count"]:
    """Return quantiles of γ ~ N(1, stretch), for averages over it."""
    below = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    gamma: Tensor = 1 + math.sqrt(stretch) * torch.special.ndtri(below)
    return gamma


def weight_outside(c: Outputs) -> Float[Tensor, " draws"]:
    """Return the share of the weight that is not in ½(v_a + v_b)."""
    return (c - query_along(c.shape[-1], 0.5, A, B)).abs().sum(-1) / 2


def share(name: str, happened: Bool[Tensor, " draws"], p: float) -> Measurement:
    """Return a share of draws, which must equal p within four standard errors and one draw."""
    within = 4 * share_error(p, len(happened)) + 1 / len(happened)
    return equal(name, happened.double().mean(), p, within)
