"""The average of two values if the keys are noisy, by one head and by two.

Keys are drawn around orthonormal means. The values are the unit vectors: the output c is then the
weights themselves.
"""

import math
from functools import partial
from typing import Annotated, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.studies.figure import Line, chart, figure, histogram, series
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    equal,
    informational,
)
from regard.studies.single_head.one_query import by_keys
from regard.studies.study import Seed, study
from regard.studies.tensors import draw_normal

NoisyKeys: TypeAlias = Float[Tensor, "draws n n"]
Outputs: TypeAlias = Float[Tensor, "draws n"]
"""The output c of each draw: a weight for each value."""
A, B = 0, 1
"""The keys that are looked for."""

Keys: TypeAlias = Annotated[int, Meta(ge=3, le=48, description="keys")]
Length: TypeAlias = Annotated[
    float, Meta(gt=0, le=10_000, description="length of a query along each mean")
]
Noise: TypeAlias = Annotated[
    float, Meta(gt=0, le=1, description="α, the variance of each key in every direction")
]
Stretch: TypeAlias = Annotated[
    float, Meta(gt=0, le=4, description="variance of k_a along its mean, beyond α")
]
Draws: TypeAlias = Annotated[int, Meta(ge=100, le=8000, description="draws of all keys")]


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

    Yes while ln n ≪ t ≪ 1/√α. But if the norm of k_a varies, c = s·v_a + (1 − s)·v_b with s =
    sigmoid(t(γ − 1)): most draws give nearly v_a or nearly v_b.

    $$ q = t (\mu_a + \mu_b), \quad k_a \approx \gamma \mu_a, \quad s \to \frac{1}{1 + e^{-t (\gamma
    - 1)}} $$

    The means are known and the keys are not, so the query is made of means: q = t(μ_a + μ_b).
    Noise of variance α in every direction moves each score by t√(2α). That is little if t is far
    below 1/√α; and t must be far above ln n, so that the other keys get no weight. Small noise
    leaves room between the two.

    Noise along the mean is another matter. If k_a is γ times as long as usual, its score is tγ and
    that of k_b is t. Softmax doesn't see that both are large; it sees the difference t(γ − 1),
    which is of the order of t. So the same long query that silences the other keys makes the head
    choose: γ a little above 1 gives v_a, a little below 1 gives v_b. The average comes out right
    only as the average over many draws.

    Figure. Left: if all keys have the same noise, the average is right for queries between ln n and
    1/√α (dotted), and wrong for shorter and for longer ones; dots: measured. Right: if the norm of
    k_a varies, most values of s at t = {t:g} are near 0 or near 1.
    """
    query = toward(n, t, A, B)
    alike, uneven = (noisy_keys(draws, n, alpha, extra, seed) for extra in (0.0, stretch))
    deviation = t * math.sqrt(2 * alpha)
    c = attended(uneven, query)
    s = attended(uneven[:, [A, B]], query)[:, 0]  # the other keys dropped
    limit = torch.sigmoid(t * (uneven[:, A, A] - 1))
    chosen = (s - 0.5).abs() > 0.4
    noise, error = (alike @ query - query).std(), deviation / math.sqrt(2 * draws * n)
    outside = misplaced(attended(alike, query)).mean()
    others = 1 - c[:, [A, B]].sum(-1).mean()
    yield equal("deviation of the scores, keys alike", noise, deviation, within=4 * error)
    yield at_most("weight outside of ½(v_a + v_b), keys alike, mean", outside, 0.02)
    yield at_most("weight of all other values, k_a varying, mean", others, 0.02)
    # γ is read off k_a; its noise along μ_b and that of k_b remain, of variance 3α, and
    # the slope of the sigmoid is ¼ at most.
    within = 6 / 4 * t * math.sqrt(3 * alpha) + 1e-12
    yield at_most("largest difference of s from sigmoid(t(γ − 1))", (s - limit).abs().max(), within)
    yield share("draws with s below 0.1 or above 0.9", chosen, chosen_share(t, alpha, stretch))
    yield at_least("the same, wanted for “most”", chosen.double().mean(), 0.5)
    lengths = np.geomspace(0.5, 10_000, 30)
    errors = [misplaced(attended(alike[:500], toward(n, x, A, B))).mean() for x in lengths]
    yield figure(
        chart(
            series(lengths, errors, style="line with dots"),
            Line(x=math.log(n), label="ln n"),
            Line(x=1 / math.sqrt(alpha), label="1/√α"),
            title="keys alike",
            x="t",
            y="weight outside of the average",
            x_scale="log",
            y_scale="log",
        ),
        chart(
            histogram(s, [i / 20 for i in range(21)], color=1),
            title="the norm of k_a varies",
            x="s, the share of v_a",
            y="draws",
        ),
    )


def chosen_share(t: float, alpha: float, stretch: float) -> float:
    """How often s is below 0.1 or above 0.9, by the formula.

    The difference of the two scores is normal, of variance t²(stretch + 4α).
    """
    return 2 * normal(-math.log(9) / (t * math.sqrt(stretch + 4 * alpha)))


@study()
def noisy_keys_two_heads(
    n: Keys = 10,
    t: Length = 8.0,
    alpha: Noise = 1e-6,
    stretch: Stretch = 0.5,
    draws: Draws = 4000,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do two heads gain over one if the norm of a key varies?

    With q₁ = tμ_a and q₂ = tμ_b the output stays near ½(v_a + v_b) in four of five draws, and its
    variance is at most a quarter of that of one head.

    $$ P(\alpha_a > \tfrac{1}{2}) = \Phi\left(\sqrt{2} \left(1 - \frac{\ln(n - 1)}{t}\right)\right)
    $$

    Each head looks for one key, and the output is the mean of what they find. k_a and k_b no
    longer compete in one softmax. However long k_a is, the first head gives v_a as long as tγ
    exceeds ln(n − 1); and the second head never sees k_a, which is orthogonal to its query.

    The first head fails in two cases. If γ < 0, the key points the wrong way, and a longer query
    makes it worse: Φ(−√2), 8 % of the draws, which the course lets us ignore. If γ lies between 0
    and ln(n − 1)/t, the key is too short for this query, which the course doesn't mention; a
    longer query mends that. When the first head fails it gives the average of the other values,
    and the second still gives v_b: the output is half wrong, never all wrong.

    Figure. Left: histograms of the weight outside of the average; with one head most draws are near
    ½, with two heads nearly all are near 0. Right: how often the first head finds v_a rises with t,
    later if there are more keys. Lines: formula; dots: measured with {n} keys; dotted: the limit,
    and t.
    """
    alike, uneven = (noisy_keys(draws, n, alpha, extra, seed) for extra in (0.0, stretch))
    one, two = attended(uneven, toward(n, t, A, B)), two_heads(uneven, t)
    finds = attended(uneven, toward(n, t, A))[:, A] > 0.5
    gamma, even = uneven[:, A, A], evenly_drawn(stretch)
    of_one = without_noise(even, toward(n, t, A, B))
    of_two = (without_noise(even, toward(n, t, A)) + without_noise(even, toward(n, t, B))) / 2
    outside = misplaced(two_heads(alike, t)).mean()
    yield at_most("weight outside of ½(v_a + v_b), keys alike, mean", outside, 0.02)
    yield share("draws in which α_a > ½", finds, found_share(n, t, stretch))
    yield share("the same as t → ∞: draws with γ > 0", gamma > 0, normal(1 / math.sqrt(stretch)))
    right_way = finds[gamma > 0].double().mean()
    yield informational("draws in which α_a > ½, of those with γ > 0", right_way)
    near_one, near_two = ((misplaced(c) < 0.25).double().mean() for c in (one, two))
    name = "draws with at most a quarter of the weight outside, two heads"
    yield at_least(name, near_two, 0.8)
    yield informational("the same, one head", near_one)
    yield variance_number("variance of c, one head", one, of_one)
    yield variance_number("variance of c, two heads", two, of_two)
    ratio = distances(two).mean() / distances(one).mean()
    yield at_most("variance of two heads over that of one", ratio, 0.25)
    lengths, bins = np.geomspace(1, 100, 60).tolist(), [i / 20 for i in range(13)]
    measured = {
        x: (attended(uneven[:1000], toward(n, x, A))[:, A] > 0.5).double().mean()
        for x in lengths[::6]
    }
    yield figure(
        chart(
            histogram(misplaced(one), bins, "one head"),
            histogram(misplaced(two), bins, "two heads"),
            x="weight outside of the average",
            y="draws",
        ),
        chart(
            *by_keys(lengths, {4, n, 100}, partial(found_share, stretch=stretch), {n: measured}),
            Line(y=normal(1 / math.sqrt(stretch)), label="limit"),
            Line(x=t, label=f"t = {t:g}"),
            x="t",
            y="draws in which α_a > ½",
            x_scale="log",
            y_limits=(0, 1),
        ),
    )


def two_heads(keys: NoisyKeys, t: float) -> Outputs:
    """½(c₁ + c₂), draw by draw."""
    n = keys.shape[-1]
    return (attended(keys, toward(n, t, A)) + attended(keys, toward(n, t, B))) / 2


def found_share(n: int, t: float, stretch: float) -> float:
    """How often the first head gives v_a more than half of its weight, as α → 0."""
    return normal((1 - math.log(n - 1) / t) / math.sqrt(stretch))


def distances(c: Outputs) -> Float[Tensor, " draws"]:
    """‖c − mean c‖², draw by draw; their mean is the variance of c."""
    return (c - c.mean(0)).square().sum(-1)


def variance_number(name: str, c: Outputs, predicted: Outputs) -> Measurement:
    """The variance of c must be that of the formula, to within four standard errors."""
    squares = distances(c)
    error = float(squares.std()) / math.sqrt(len(squares))
    return equal(name, squares.mean(), distances(predicted).mean(), within=4 * error)


def noisy_keys(draws: int, n: int, alpha: float, stretch: float, seed: int) -> NoisyKeys:
    """k_i ~ N(μ_i, αI), but k_a ~ N(μ_a, αI + stretch·μ_a μ_aᵀ); the means are unit vectors.

    With the same seed, other variances give the same noise in another size.
    """
    generator = torch.Generator().manual_seed(seed)
    noise, along = draw_normal(generator, draws, n, n), draw_normal(generator, draws)
    keys = math.sqrt(alpha) * noise + torch.eye(n, dtype=torch.float64)
    keys[:, A, A] += math.sqrt(stretch) * along
    return keys


def toward(n: int, t: float, *means: int) -> Float[Tensor, " n"]:
    """The query t·(the sum of some means)."""
    query = torch.zeros(n, dtype=torch.float64)
    query[list(means)] = t
    return query


def attended(
    keys: Float[Tensor, "draws keys n"], query: Float[Tensor, " n"]
) -> Float[Tensor, "draws keys"]:
    """c, draw by draw."""
    queries = query.expand(len(keys), 1, 1, len(query))
    return Softmax(scaled=False).weights(queries, keys[:, None])[:, 0, 0]


def without_noise(gamma: Float[Tensor, " draws"], query: Float[Tensor, " n"]) -> Outputs:
    """c by the formula as α → 0: k_a = γμ_a, and every other key is its mean."""
    scores = query.repeat(len(gamma), 1)
    scores[:, A] *= gamma
    return scores.softmax(-1)


def evenly_drawn(stretch: float, count: int = 20_001) -> Float[Tensor, " count"]:
    """γ ~ N(1, stretch) without chance: as many quantiles, for averages over it."""
    below = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    gamma: Tensor = 1 + math.sqrt(stretch) * torch.special.ndtri(below)
    return gamma


def misplaced(c: Outputs) -> Float[Tensor, " draws"]:
    """The share of the weight that is elsewhere than in ½(v_a + v_b)."""
    wanted = toward(c.shape[-1], 0.5, A, B)
    return (c - wanted).abs().sum(-1) / 2


def share(name: str, happened: Bool[Tensor, " draws"], p: float) -> Measurement:
    """A share of draws that must be p, to within four standard errors and one draw."""
    error = math.sqrt(p * (1 - p) / len(happened))
    return equal(name, happened.double().mean(), p, within=4 * error + 1 / len(happened))


def normal(x: float) -> float:
    """Φ, the distribution function of the normal distribution."""
    return math.erfc(-x / math.sqrt(2)) / 2
