"""The output of two heads if the length of a key varies: mean, variance and probability."""

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, Worst
from regard.derivations.draws import number
from regard.derivations.expectation import density, expect, integrate, normal_cdf
from regard.derivations.heads import HALF, draw_keys, indices_of_keys, long_key, others
from regard.derivations.tex_scope import Letter, Normal

_NODES = 64
_FAR = 1 + 12 * HALF
"""Beyond it γ has no probability in float64."""


def _draw(generator: Generator) -> Inputs:
    x = draw_keys(generator)
    return Inputs(x | {"gamma": number(generator, -0.5, 2.5), "t": number(generator, 1, 6)})


def _output(x: Inputs, query: Tensor, gamma: Tensor) -> Float64[Tensor, " e"]:
    """Output of the head with the query t μ, for k_a = γ μ_a."""
    return (long_key(x, gamma) @ (x.t * x.mu[query])).softmax(0) @ x.v


def _over_gamma(f: Callable[[Tensor], Tensor]) -> Tensor:
    """E[f(γ)] for γ ~ N(1, ½)."""

    def each(z: Float64[Tensor, "points 1"]) -> Float64[Tensor, "points ..."]:
        return torch.stack([f(gamma) for gamma in z[:, 0]])

    return expect(each, torch.ones(1, dtype=torch.float64), HALF, nodes=_NODES)


def _average(x: Inputs, gamma: Tensor) -> Float64[Tensor, " e"]:
    """½ (c_1 + c_2)."""
    return (_output(x, x.a, gamma) + _output(x, x.b, gamma)) / 2


def _p(x: Inputs, gamma: Tensor) -> Float64[Tensor, ""]:
    """e^(tγ) / (e^(tγ) + n − 1)."""
    power = (x.t * gamma).exp()
    return power / (power + x.n - 1)


def _variance(f: Callable[[Tensor], Tensor]) -> Float64[Tensor, ""]:
    """E‖f(γ) − E f(γ)‖²."""
    mean = _over_gamma(f)
    return _over_gamma(lambda gamma: (f(gamma) - mean).square().sum())


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


def _spread(x: Inputs) -> Float64[Tensor, ""]:
    """‖v_a − v̄‖², v̄ the mean of all values but v_a."""
    return (x.v[x.a] - others(x, x.a).mean(0)).square().sum()


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


_ROOT_2 = torch.tensor(2.0, dtype=torch.float64).sqrt()

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
        Step(r"c_1", lambda x: _output(x, x.a, x.gamma), "The first head, for one draw."),
        Step(
            r"= \frac{e^{t \gamma} v_a + \sum_{j \neq a} v_j}{e^{t \gamma} + n - 1}",
            lambda x: (
                ((x.t * x.gamma).exp() * x.v[x.a] + others(x, x.a).sum(0))
                / ((x.t * x.gamma).exp() + x.n - 1)
            ),
            r"$k_a^\top q_1 = t \gamma$, and all other scores are 0.",
        ),
        Step(
            r"= p \, v_a + (1 - p) \, \bar v_{-a}, \quad p = \frac{e^{t \gamma}}{e^{t \gamma} + n "
            "- 1}",
            lambda x: _p(x, x.gamma) * x.v[x.a] + (1 - _p(x, x.gamma)) * others(x, x.a).mean(0),
            r"The $n - 1$ other values share the rest equally.",
        ),
        Step(r"c_2", lambda x: _output(x, x.b, x.gamma), "The second head, for the same draw."),
        Step(
            r"= \frac{e^t v_b + \sum_{j \neq b} v_j}{e^t + n - 1}",
            lambda x: (x.t.exp() * x.v[x.b] + others(x, x.b).sum(0)) / (x.t.exp() + x.n - 1),
            r"$k_a^\top q_2 = \gamma t \, \mu_a^\top \mu_b = 0$: the length of $k_a$ has no part "
            "in it.",
        ),
        Step(
            r"\mathbb{E}\left[c\right]",
            lambda x: _over_gamma(lambda gamma: _average(x, gamma)),
            "The mean of the output. Evaluated through both softmaxes.",
        ),
        Step(
            r"= \frac{1}{2} \left( \mathbb{E}[p] \, v_a + (1 - \mathbb{E}[p]) \, \bar v_{-a} + c_2 "
            r"\right)",
            lambda x: (
                (
                    _over_gamma(lambda gamma: _p(x, gamma)) * x.v[x.a]
                    + (1 - _over_gamma(lambda gamma: _p(x, gamma))) * others(x, x.a).mean(0)
                    + _output(x, x.b, x.gamma)
                )
                / 2
            ),
            r"Only $p$ is random. If $t$ is large, $p$ is near 1 for almost all $\gamma > 0$, and "
            r"$c_2$ near $v_b$: the output is near $\frac{1}{2} (v_a + v_b)$.",
        ),
        Step(
            r"\mathbb{E}\left[ \lVert c - \mathbb{E}[c] \rVert^2 \right]",
            lambda x: _variance(lambda gamma: _average(x, gamma)),
            "Its variance. Evaluated through both softmaxes.",
        ),
        Step(
            r"= \frac{1}{4} \, \mathbb{E}\left[ \lVert c_1 - \mathbb{E}[c_1] \rVert^2 \right]",
            lambda x: _variance(lambda gamma: _output(x, x.a, gamma)) / 4,
            r"$c_2$ is constant, and the factor $\frac{1}{2}$ is squared.",
        ),
        Step(
            r"= \frac{1}{4} \, \mathrm{Var}[p] \; \lVert v_a - \bar v_{-a} \rVert^2",
            lambda x: _variance(lambda gamma: _p(x, gamma)) * _spread(x) / 4,
            r"$c_1 = \bar v_{-a} + p \, (v_a - \bar v_{-a})$.",
        ),
        Step(
            r"\leq \frac{1}{16} \, \lVert v_a - \bar v_{-a} \rVert^2",
            lambda x: _spread(x) / 16,
            r"$0 \leq p \leq 1$, so that its variance is at most $\frac{1}{4}$.",
            worst=Worst(
                r"$n - 1 = e^t$ with a large $t$, all other values equal", _even_odds, 0.95
            ),
        ),
        Step(
            r"\mathrm{Var}\left[ 1_{\gamma > 0} \right]",
            lambda x: _indicator_variance(0.0).expand_as(x.t),
            r"For $t \to \infty$, $p$ is 1 if $\gamma > 0$ and 0 if $\gamma < 0$. Evaluated by "
            r"integrals over the density of $\gamma$.",
        ),
        Step(
            r"= \Phi(\sqrt 2) \left( 1 - \Phi(\sqrt 2) \right)",
            lambda x: (normal_cdf(_ROOT_2) * (1 - normal_cdf(_ROOT_2))).expand_as(x.t),
            r"$P(\gamma > 0) = P\left(\frac{\gamma - 1}{\sqrt{1/2}} > -\sqrt 2\right) = \Phi(\sqrt "
            r"2)$, about 0.921: the product is about 0.073.",
        ),
        Step(
            r"\mathrm{Var}\left[ 1_{\gamma > 1} \right]",
            lambda x: _indicator_variance(1.0).expand_as(x.t),
            r"One head, for $t \to \infty$: its share $s$ of $v_a$ is 1 if $\gamma > 1$ and 0 if "
            r"$\gamma < 1$.",
        ),
        Step(
            r"= \frac{1}{4}",
            lambda x: torch.full_like(x.t, 0.25),
            r"$\gamma$ is symmetric around 1. So the share of one head varies more than three "
            "times as much as $p$, and averaging two heads divides the variance by four again.",
        ),
        Step(
            r"P\left( \alpha_a > \frac{1}{2} \right)",
            lambda x: _probability_above(_crossing(x)),
            "How often the first head gives $v_a$ more than half of its weight. Evaluated by "
            r"bisection of the softmax and an integral over the density of $\gamma$.",
        ),
        Step(
            r"= P\left( e^{t \gamma} > n - 1 \right)",
            lambda x: _probability_above(float(torch.log(x.n - 1) / x.t)),
            r"$\frac{e^{t \gamma}}{e^{t \gamma} + n - 1} > \frac{1}{2}$.",
        ),
        Step(
            r"= P\left( \frac{\gamma - 1}{\sqrt{1/2}} > \frac{\ln(n - 1) / t - 1}{\sqrt{1/2}} "
            r"\right)",
            lambda x: integrate(
                density, float((torch.log(x.n - 1) / x.t - 1) / HALF), 12.0, nodes=100
            ),
            r"Logarithm, then standardize: $\gamma$ has mean 1 and variance $\frac{1}{2}$. "
            "Evaluated as an integral over the standard normal density.",
        ),
        Step(
            r"= \Phi\left( \sqrt 2 \left( 1 - \frac{\ln(n - 1)}{t} \right) \right)",
            lambda x: normal_cdf(_ROOT_2 * (1 - torch.log(x.n - 1) / x.t)),
            r"$P(z > y) = \Phi(-y)$. For $t \to \infty$ it is $\Phi(\sqrt 2)$.",
        ),
    ),
)

DERIVATIONS = (TWO_HEAD_OUTPUT,)
