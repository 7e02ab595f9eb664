"""The output of two heads if the length of a key varies: mean, variance and probability."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import number
from regard.derivations.expectation import density, integrate
from regard.derivations.heads import HALF, draw_keys, indices_of_keys, long_key, others
from regard.derivations.tex_scope import Letter, Normal

_NODES = 64
_FAR = 1 + 12 * HALF
"""Bound of γ; the density beyond it is 0 in float64."""


def _draw(generator: Generator) -> Inputs:
    x = draw_keys(generator)
    return Inputs(x | {"gamma": number(generator, -0.5, 2.5), "t": number(generator, 1, 6)})


def _probability_above(threshold: float) -> Float64[Tensor, ""]:
    """P(γ > threshold), the integral of the density of N(1, ½)."""
    return integrate(lambda z: density(z, 1.0, 0.5), threshold, _FAR, nodes=100)


def _indicator_variance(threshold: float) -> Float64[Tensor, ""]:
    """Var[1_(γ > threshold)] = E[(1_(γ > threshold) − P)²], integrated on both sides."""
    above = _probability_above(threshold)
    below = integrate(lambda z: density(z, 1.0, 0.5), 2 - _FAR, threshold, nodes=100)
    return above * (1 - above) ** 2 + below * (0 - above) ** 2


def _crossing(x: Inputs) -> float:
    """The γ at which the first head gives v_a half of its weight, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(80):
        middle = (low + high) / 2
        keys = long_key(x, torch.tensor(middle, dtype=torch.float64))
        if float((keys @ (x.t * x.mu[x.a])).softmax(0)[x.a]) > 0.5:
            high = middle
        else:
            low = middle
    return high


def _letters(x: Inputs) -> dict[str, Letter]:
    """A key for a γ, and v̄ without v_a."""

    def key(j: Tensor, gamma: Tensor) -> Float64[Tensor, " d"]:
        place = int(j) - 1
        return x.mu[place] * gamma if place == int(x.a) else x.mu[place]

    return {"kappa": key, "bar v-a": others(x, x.a).mean(0)}


def _even_odds() -> Inputs:
    """e^t other keys of one value, here once: p is 0 for γ < 1, and 1 for γ > 1."""
    t = torch.tensor(50.0).double()
    row, v = torch.eye(3).double(), torch.tensor([[2.0], [0.5], [0.5]]).double()
    places = {"a": torch.tensor(0), "b": torch.tensor(1)}
    return Inputs(mu=row, v=v, t=t, n=t.exp() + 1, **places)


TWO_HEAD_OUTPUT = Derivation(
    name="two-head-output",
    title="Output of two heads if the length of a key varies",
    given=r"As with one head, in the limit $\alpha \to 0$: $k_a = \gamma \mu_a$ with $\gamma \sim "
    r"\mathcal{N}(1, \frac{1}{2})$, and $k_j = \mu_j$ for all others, orthonormal, $n \geq 3$. Two "
    r"queries $q_1 = t \mu_a$ and $q_2 = t \mu_b$ give $c_1$ and $c_2$; the output is $c = "
    r"\frac{1}{2} (c_1 + c_2)$. $\bar v_{-a}$ is the mean of all values but $v_a$. "
    r"The course ignores $\gamma < 0$; here it is part of the distribution. Expectations over "
    r"$\gamma$ are evaluated by Gauss–Hermite quadrature.",
    draw=_draw,
    letters=_letters,
    indices=indices_of_keys,
    laws=lambda _: {"gamma": Normal(torch.ones(()).double(), HALF, _NODES)},
    defined={
        "p": r"\frac{e^{t \gamma}}{e^{t \gamma} + n - 1}",
        "c1": r"\sum_j \mathrm{softmax}_j(t \, \mu_a^\top \kappa(j, \gamma)) \, v_j",
        "c2": r"\sum_j \mathrm{softmax}_j(t \, \mu_b^\top \kappa(j, \gamma)) \, v_j",
        "c": r"\frac{1}{2} (c_1 + c_2)",
    },
    steps=(
        Step(r"c_1", "The first head, for one draw."),
        Step(
            r"= \frac{e^{t \gamma} v_a + \sum_{j \neq a} v_j}{e^{t \gamma} + n - 1}",
            r"$k_a^\top q_1 = t \gamma$, and all other scores are 0.",
        ),
        Step(
            r"= p \, v_a + (1 - p) \, \bar v_{-a}, \quad p = \frac{e^{t \gamma}}{e^{t \gamma} + n "
            "- 1}",
            r"The $n - 1$ other values share the rest equally.",
        ),
        Step(r"c_2", "The second head, for the same draw."),
        Step(
            r"= \frac{e^t v_b + \sum_{j \neq b} v_j}{e^t + n - 1}",
            r"$k_a^\top q_2 = \gamma t \, \mu_a^\top \mu_b = 0$: the length of $k_a$ has no part "
            "in it.",
        ),
        Step(
            r"\mathbb{E}\left[c\right]", "The mean of the output. Evaluated through both softmaxes."
        ),
        Step(
            r"= \frac{1}{2} \left( \mathbb{E}[p] \, v_a + (1 - \mathbb{E}[p]) \, \bar v_{-a} + c_2 "
            r"\right)",
            r"Only $p$ is random. If $t$ is large, $p$ is near 1 for almost all $\gamma > 0$, and "
            r"$c_2$ near $v_b$: the output is near $\frac{1}{2} (v_a + v_b)$.",
        ),
        Step(
            r"\mathbb{E}\left[ \lVert c - \mathbb{E}[c] \rVert^2 \right]",
            "Its variance. Evaluated through both softmaxes.",
        ),
        Step(
            r"= \frac{1}{4} \, \mathbb{E}\left[ \lVert c_1 - \mathbb{E}[c_1] \rVert^2 \right]",
            r"$c_2$ is constant, and the factor $\frac{1}{2}$ is squared.",
        ),
        Step(
            r"= \frac{1}{4} \, \mathrm{Var}[p] \; \lVert v_a - \bar v_{-a} \rVert^2",
            r"$c_1 = \bar v_{-a} + p \, (v_a - \bar v_{-a})$.",
        ),
        Step(
            r"\leq \frac{1}{16} \, \lVert v_a - \bar v_{-a} \rVert^2",
            r"$0 \leq p \leq 1$, so that its variance is at most $\frac{1}{4}$.",
            worst=WorstCase(
                r"$n - 1 = e^t$ with a large $t$, all other values equal", _even_odds, 0.95
            ),
        ),
        Step(
            r"\mathrm{Var}\left[ 1_{\gamma > 0} \right]",
            r"For $t \to \infty$, $p$ is 1 if $\gamma > 0$ and 0 if $\gamma < 0$. Evaluated by "
            r"integrals over the density of $\gamma$.",
            value=lambda _: _indicator_variance(0.0),
        ),
        Step(
            r"= \Phi(\sqrt 2) \left( 1 - \Phi(\sqrt 2) \right)",
            r"$P(\gamma > 0) = P\left(\frac{\gamma - 1}{\sqrt{1/2}} > -\sqrt 2\right) = \Phi(\sqrt "
            r"2)$, about 0.921: the product is about 0.072.",
        ),
        Step(
            r"\mathrm{Var}\left[ 1_{\gamma > 1} \right]",
            r"One head, for $t \to \infty$: its share $s$ of $v_a$ is 1 if $\gamma > 1$ and 0 if "
            r"$\gamma < 1$.",
            value=lambda _: _indicator_variance(1.0),
        ),
        Step(
            r"= \frac{1}{4}",
            r"$\gamma$ is symmetric around 1. So the share of one head varies more than three "
            "times as much as $p$, and averaging two heads divides the variance by four again.",
        ),
        Step(
            r"P\left( \alpha_a > \frac{1}{2} \right)",
            "How often the first head gives $v_a$ more than half of its weight. Evaluated by "
            r"bisection of the softmax and an integral over the density of $\gamma$.",
            value=lambda x: _probability_above(_crossing(x)),
        ),
        Step(
            r"= P\left( e^{t \gamma} > n - 1 \right)",
            r"$\frac{e^{t \gamma}}{e^{t \gamma} + n - 1} > \frac{1}{2}$.",
            value=lambda x: _probability_above(float(torch.log(x.n - 1) / x.t)),
        ),
        Step(
            r"= P\left( \frac{\gamma - 1}{\sqrt{1/2}} > \frac{\ln(n - 1) / t - 1}{\sqrt{1/2}} "
            r"\right)",
            r"Logarithm, then standardize: $\gamma$ has mean 1 and variance $\frac{1}{2}$. "
            "Evaluated as an integral over the standard normal density.",
            value=lambda x: integrate(
                density, float((torch.log(x.n - 1) / x.t - 1) / HALF), 12.0, nodes=100
            ),
        ),
        Step(
            r"= \Phi\left( \sqrt 2 \left( 1 - \frac{\ln(n - 1)}{t} \right) \right)",
            r"$P(z > y) = \Phi(-y)$. For $t \to \infty$ it is $\Phi(\sqrt 2)$.",
        ),
    ),
)

DERIVATIONS = (TWO_HEAD_OUTPUT,)
