"""The average of two by two heads."""

import math

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.drawing import INK, panels
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    equal,
    informational,
    table,
)
from regard.studies.single_head.noisy_keys import (
    A,
    B,
    Draws,
    Keys,
    Length,
    Noise,
    Seed,
    Stretch,
    attended,
    evenly_drawn,
    misplaced,
    noisy_keys,
    normal,
    share,
    toward,
    without_noise,
)
from regard.studies.study import study


@study(
    asked=["practical-4 2.d.1", "practical-4 2.d.2"],
    question="What do two heads gain over one if the norm of a key varies?",
    claim="With q₁ = tμ_a and q₂ = tμ_b the output stays near ½(v_a + v_b) in four of five draws, "
    "and its variance is at most a quarter of that of one head.",
    formula=r"P(\alpha_a > \tfrac{1}{2}) = \Phi\left(\sqrt{2} "
    r"\left(1 - \frac{\ln(n - 1)}{t}\right)\right)",
)
def noisy_keys_two_heads(
    n: Keys = 10,
    t: Length = 8.0,
    alpha: Noise = 1e-6,
    stretch: Stretch = 0.5,
    draws: Draws = 4000,
    seed: Seed = 0,
) -> Evidence:
    """Each head looks for one key, and the output is the mean of what they find. k_a and k_b no
    longer compete in one softmax. However long k_a is, the first head gives v_a as long as tγ
    exceeds ln(n − 1); and the second head never sees k_a, which is orthogonal to its query.

    The first head fails in two cases. If γ < 0, the key points the wrong way, and a longer query
    makes it worse: Φ(−√2), 8 % of the draws, which the course lets us ignore. If γ lies between 0
    and ln(n − 1)/t, the key is too short for this query, which the course doesn't mention; a
    longer query mends that. When the first head fails it gives the average of the other values,
    and the second still gives v_b: the output is half wrong, never all wrong.
    """
    alike, uneven = (noisy_keys(draws, n, alpha, extra, seed) for extra in (0.0, stretch))
    one, two = attended(uneven, toward(n, t, A, B)), two_heads(uneven, t)
    finds = attended(uneven, toward(n, t, A))[:, A] > 0.5
    gamma, even = uneven[:, A, A], evenly_drawn(stretch)
    of_one = without_noise(even, toward(n, t, A, B))
    of_two = (without_noise(even, toward(n, t, A)) + without_noise(even, toward(n, t, B))) / 2
    return Evidence(
        numbers=(
            at_most(
                "weight outside of ½(v_a + v_b), keys alike, mean",
                misplaced(two_heads(alike, t)).mean(),
                0.02,
            ),
            share("draws in which α_a > ½", finds, found_share(n, t, stretch)),
            share("the same as t → ∞: draws with γ > 0", gamma > 0, normal(1 / math.sqrt(stretch))),
            informational(
                "draws in which α_a > ½, of those with γ > 0", finds[gamma > 0].double().mean()
            ),
            at_least(
                "draws with at most a quarter of the weight outside, two heads",
                (misplaced(two) < 0.25).double().mean(),
                0.8,
            ),
            informational("the same, one head", (misplaced(one) < 0.25).double().mean()),
            variance_number("variance of c, one head", one, of_one),
            variance_number("variance of c, two heads", two, of_two),
            at_most(
                "variance of two heads over that of one",
                distances(two).mean() / distances(one).mean(),
                0.25,
            ),
        ),
        figure=_drawn(uneven, t, stretch, one, two),
        table=table(
            ["t", "draws in which α_a > ½, by the formula"],
            [(x, found_share(n, x, stretch)) for x in (2.0, 4.0, 8.0, 16.0, 64.0, math.inf)],
        ),
    )


def two_heads(keys: Float[Tensor, "draws n n"], t: float) -> Float[Tensor, "draws n"]:
    """½(c₁ + c₂), draw by draw."""
    n = keys.shape[-1]
    return (attended(keys, toward(n, t, A)) + attended(keys, toward(n, t, B))) / 2


def found_share(n: int, t: float, stretch: float) -> float:
    """How often the first head gives v_a more than half of its weight, as α → 0."""
    return normal((1 - math.log(n - 1) / t) / math.sqrt(stretch))


def distances(c: Float[Tensor, "draws n"]) -> Float[Tensor, " draws"]:
    """‖c − mean c‖², draw by draw; their mean is the variance of c."""
    return (c - c.mean(0)).square().sum(-1)


def variance_number(
    name: str, c: Float[Tensor, "draws n"], predicted: Float[Tensor, "quantiles n"]
) -> Measurement:
    """The variance of c must be that of the formula, to within four standard errors."""
    squares = distances(c)
    error = float(squares.std()) / math.sqrt(len(squares))
    return equal(name, squares.mean(), distances(predicted).mean(), within=4 * error)


def _drawn(
    keys: Float[Tensor, "draws n n"],
    t: float,
    stretch: float,
    one: Float[Tensor, "draws n"],
    two: Float[Tensor, "draws n"],
) -> Drawing:
    n, lengths = keys.shape[-1], np.geomspace(1, 100, 60)
    with panels(2, height=3.2) as (figure, (left, right)):
        shown = [misplaced(c).numpy() for c in (one, two)]
        left.hist(shown, bins=[i / 20 for i in range(13)], label=["one head", "two heads"])
        left.set(xlabel="weight outside of the average", ylabel="draws")
        left.legend()
        for i, count in enumerate(sorted({4, n, 100})):
            predicted = [found_share(count, x, stretch) for x in lengths]
            right.plot(lengths, predicted, color=f"C{i}", label=f"{count} keys")
            if count == n:
                measured = [
                    float((attended(keys[:1000], toward(n, x, A))[:, A] > 0.5).double().mean())
                    for x in lengths[::6]
                ]
                right.plot(lengths[::6], measured, "o", color=f"C{i}", markersize=4)
        right.axhline(normal(1 / math.sqrt(stretch)), linestyle=":", color=INK, linewidth=1)
        right.axvline(t, linestyle=":", color=INK, linewidth=1)
        right.set(xscale="log", xlabel="t", ylabel="draws in which α_a > ½", ylim=(0, 1))
        right.legend()
        return drawing(
            figure,
            "Left: histograms of the weight outside of the average; one head has most draws near "
            "½, two heads nearly all at 0. Right: how often the first head finds v_a rises with t, "
            f"later if there are more keys. Lines: formula; dots: measured with {n} keys. Dotted: "
            "the limit, and t.",
            name="noisy-keys-two-heads",
        )
