"""The average of two, if the keys are noisy."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.drawing import INK, panels
from regard.studies.finding import Drawing, Evidence, at_least, at_most, drawing, equal, table
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
    misplaced,
    noisy_keys,
    normal,
    share,
    toward,
)
from regard.studies.study import study


@study(
    asked=["practical-4 2.c.1", "practical-4 2.c.2"],
    question="Does one head still average two values if the keys are noisy?",
    claim="Yes while ln n ≪ t ≪ 1/√α. But if the norm of k_a varies, c = s·v_a + (1 − s)·v_b "
    "with s = sigmoid(t(γ − 1)): most draws give nearly v_a or nearly v_b.",
    formula=r"q = t (\mu_a + \mu_b), \quad k_a \approx \gamma \mu_a, \quad "
    r"s \to \frac{1}{1 + e^{-t (\gamma - 1)}}",
)
def noisy_keys_one_head(
    n: Keys = 10,
    t: Length = 8.0,
    alpha: Noise = 1e-6,
    stretch: Stretch = 0.5,
    draws: Draws = 4000,
    seed: Seed = 0,
) -> Evidence:
    """The means are known and the keys are not, so the query is made of means: q = t(μ_a + μ_b).
    Noise of variance α in every direction moves each score by t√(2α). That is little if t is far
    below 1/√α; and t must be far above ln n, so that the other keys get no weight. Small noise
    leaves room between the two.

    Noise along the mean is another matter. If k_a is γ times as long as usual, its score is tγ and
    that of k_b is t. Softmax doesn't see that both are large; it sees the difference t(γ − 1),
    which is of the order of t. So the same long query that silences the other keys makes the head
    choose: γ a little above 1 gives v_a, a little below 1 gives v_b. The average comes out right
    only as the average over many draws.
    """
    query = toward(n, t, A, B)
    alike, uneven = (noisy_keys(draws, n, alpha, extra, seed) for extra in (0.0, stretch))
    deviation = t * math.sqrt(2 * alpha)
    c = attended(uneven, query)
    s = attended(uneven[:, [A, B]], query)[:, 0]  # the other keys dropped
    limit = torch.sigmoid(t * (uneven[:, A, A] - 1))
    chosen = (s - 0.5).abs() > 0.4
    return Evidence(
        numbers=(
            equal(
                "deviation of the scores, keys alike",
                (alike @ query - query).std(),
                deviation,
                within=4 * deviation / math.sqrt(2 * draws * n),
            ),
            at_most(
                "weight outside of ½(v_a + v_b), keys alike, mean",
                misplaced(attended(alike, query)).mean(),
                0.02,
            ),
            at_most(
                "weight of all other values, k_a varying, mean",
                1 - c[:, [A, B]].sum(-1).mean(),
                0.02,
            ),
            # γ is read off k_a; its noise along μ_b and that of k_b remain, of variance 3α, and
            # the slope of the sigmoid is ¼ at most.
            at_most(
                "largest difference of s from sigmoid(t(γ − 1))",
                (s - limit).abs().max(),
                6 / 4 * t * math.sqrt(3 * alpha) + 1e-12,
            ),
            share("draws with s below 0.1 or above 0.9", chosen, chosen_share(t, alpha, stretch)),
            at_least("the same, wanted for “most”", chosen.double().mean(), 0.5),
        ),
        figure=_drawn(alike[:500], t, alpha, s),
        table=table(
            ["t", "deviation of the scores, keys alike", "draws with s below 0.1 or above 0.9"],
            [
                (x, x * math.sqrt(2 * alpha), chosen_share(x, alpha, stretch))
                for x in (1.0, 2.0, 4.0, 8.0, 16.0, 100.0)
            ],
        ),
    )


def chosen_share(t: float, alpha: float, stretch: float) -> float:
    """How often s is below 0.1 or above 0.9, by the formula.

    The difference of the two scores is normal, of variance t²(stretch + 4α).
    """
    return 2 * normal(-math.log(9) / (t * math.sqrt(stretch + 4 * alpha)))


def _drawn(
    alike: Float[Tensor, "draws n n"], t: float, alpha: float, s: Float[Tensor, " draws"]
) -> Drawing:
    n = alike.shape[-1]
    lengths = np.geomspace(0.5, 10_000, 30)
    errors = [float(misplaced(attended(alike, toward(n, x, A, B))).mean()) for x in lengths]
    with panels(2, height=3.0) as (figure, (left, right)):
        left.plot(lengths, errors, "o-", color="C0", markersize=3)
        left.set(xscale="log", yscale="log", xlabel="t", title="keys alike")
        left.set(ylabel="weight outside of the average")
        for x, text in ((math.log(n), " ln n"), (1 / math.sqrt(alpha), " 1/√α")):
            left.axvline(x, linestyle=":", color=INK, linewidth=1)
            left.text(x, 1.0, text, transform=left.get_xaxis_transform(), va="top")
        right.hist(s.numpy(), bins=[i / 20 for i in range(21)], color="C1")
        right.set(xlabel="s, the part of v_a", ylabel="draws", title="k_a varies in length")
        return drawing(
            figure,
            "Left: with keys that are all alike, the average is right for queries between ln n and "
            "1/√α, and wrong for shorter and for longer ones. Right: where k_a varies in length, "
            f"the histogram of s at t = {t:g} has a heap at each end, and little between.",
            name="noisy-keys-one-head",
        )
