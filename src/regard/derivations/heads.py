"""Queries of one head that average two values, with exact and with noisy keys."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, number, orthonormal, size, sizes, two_of
from regard.derivations.tex_scope import Law, Letter, Normal, Points

HALF = 0.5**0.5
"""Standard deviation of γ, the length of k_a."""


def draw_keys(generator: Generator) -> Inputs:
    """Return orthonormal keys or means of keys, values, and the length t of a query."""
    n = size(generator, 3, 5)
    d = size(generator, n, n + 1)
    mu: Float64[Tensor, "n d"] = orthonormal(generator, n, d)
    v: Float64[Tensor, "n e"] = normal(generator, n, size(generator, 1, 3))
    a, b = two_of(generator, n)
    t = number(generator, 0.5, 6)
    return Inputs(mu=mu, v=v, a=a, b=b, t=t, **sizes(n=n))


def others(x: Inputs, *chosen: Tensor) -> Float64[Tensor, "m e"]:
    """Return the values of all other keys."""
    kept = [j for j in range(len(x.v)) if all(j != int(i) for i in chosen)]
    return x.v[kept]


def long_key(x: Inputs, gamma: Tensor) -> Float64[Tensor, "n d"]:
    """Return the keys if k_a = γ μ_a and all others are their means."""
    lengths = torch.ones(len(x.mu), dtype=torch.float64)
    lengths[x.a] = gamma
    return lengths[:, None] * x.mu


def _query(x: Inputs) -> Float64[Tensor, " d"]:
    """t (μ_a + μ_b)."""
    return x.t * (x.mu[x.a] + x.mu[x.b])


def indices_of_keys(x: Inputs) -> dict[str, range]:
    """Return the indices i and j of all keys."""
    return dict.fromkeys("ij", range(1, len(x.v) + 1))


def _keys_of_query(**others: float) -> Inputs:
    """Return drawn keys and values, with some inputs replaced."""
    x = draw_keys(Generator().manual_seed(0))
    return Inputs(x | {name: torch.tensor(value).double() for name, value in others.items()})


_LONG = WorstCase("a large $t$", lambda: _keys_of_query(t=8.0))

AVERAGING_QUERY = Derivation(
    name="averaging-query",
    title="A query that averages two values",
    given=r"Keys $k_1, \ldots, k_n$, orthogonal and of norm 1, with $n \geq 3$; values $v_j$; "
    r"scores $k_j^\top q$, not scaled. The query is $q = t (k_a + k_b)$ with $a \neq b$ and $t > "
    "0$.",
    draw=draw_keys,
    letters=lambda x: {"k": x.mu, "q": _query(x), "alpha": (x.mu @ _query(x)).softmax(0)},
    indices=indices_of_keys,
    steps=(
        Step(r"k_j^\top q", "The score of any key."),
        Step(r"= t \, k_j^\top k_a + t \, k_j^\top k_b", "Insert the query."),
        Step(
            r"= t (\delta_{ja} + \delta_{jb})",
            r"Keys are orthonormal: the score is $t$ for $a$ and for $b$, and 0 for all others.",
        ),
        Step(
            r"\alpha_a = \frac{e^{k_a^\top q}}{\sum_j e^{k_j^\top q}}",
            r"The weight of $v_a$; that of $v_b$ is the same.",
        ),
        Step(r"= \frac{e^t}{e^t + e^t + (n - 2) e^0}", r"Two scores $t$, and $n - 2$ scores 0."),
        Step(r"= \frac{e^t}{2 e^t + n - 2}", r"$e^0 = 1$."),
        Step(r"\sum_{j \neq a, b} \alpha_j", "The weight of all other values."),
        Step(r"= \frac{n - 2}{2 e^t + n - 2}", r"$n - 2$ keys of score 0."),
        Step(
            r"\leq \frac{n - 2}{2} \, e^{-t}",
            r"Drop $n - 2$ from the denominator. It is small once $t$ is well above $\ln n$.",
            worst=_LONG,
        ),
        Step(r"c = \sum_j \alpha_j v_j", "The output."),
        Step(
            r"= \frac{e^t (v_a + v_b) + \sum_{j \neq a, b} v_j}{2 e^t + n - 2}",
            "Insert the weights.",
        ),
        Step(
            r"\approx \frac{1}{2} (v_a + v_b)",
            r"The difference is at most $\frac{n - 2}{2} e^{-t} \left| \bar v - \frac{1}{2} (v_a + "
            r"v_b) \right|$ in every entry, with $\bar v$ the mean of the other values.",
            remainder=lambda x: (
                (x.n - 2)
                / 2
                * (-x.t).exp()
                * (others(x, x.a, x.b).mean(0) - (x.v[x.a] + x.v[x.b]) / 2).abs()
            ),
            worst=_LONG,
        ),
    ),
)


def _draw_noisy_keys(generator: Generator) -> Inputs:
    x = draw_keys(generator)
    alpha = number(generator, 1e-3, 0.1)
    noise: Float64[Tensor, "n d"] = alpha.sqrt() * normal(generator, *x.mu.shape)
    return Inputs(x | {"alpha": alpha, "noise": noise, "gamma": number(generator, -0.5, 2.5)})


def _share(x: Inputs) -> Float64[Tensor, ""]:
    """s = 1 / (1 + e^(−t(γ − 1)))."""
    return 1 / (1 + (-x.t * (x.gamma - 1)).exp())


def _noisy_letters(x: Inputs) -> dict[str, Letter]:
    """The query, noisy keys and their weights; the weights β with a long k_a; and s."""
    noisy, query, identity = x.mu + x.noise, _query(x), torch.eye(x.mu.shape[1]).double()
    keys = {"k": noisy, "varepsilon": x.noise, "q": query, "I": identity}
    weights, beta = (noisy @ query).softmax(0), (long_key(x, x.gamma) @ query).softmax(0)
    shares = {"alphaa": weights[x.a], "alphab": weights[x.b], "beta": beta, "s": _share(x)}
    return {**keys, **shares}


def _noisy_laws(x: Inputs) -> dict[str, Law]:
    """Return the distributions of keys, and of k_a with a random length (`\\tilde k_a`)."""
    d, mu = x.mu.shape[1], x.mu[x.a]
    z = Normal(torch.zeros(d + 1).double(), 1.0, 2).part(())
    keys = mu + x.alpha.sqrt() * z.values[:, 1:] + HALF * z.values[:, :1] * mu
    return {"k": Normal(x.mu, x.alpha.sqrt(), 2), "tilde ka": Points(keys, z.weights)}


NOISY_KEYS = Derivation(
    name="noisy-keys",
    title="One head with noisy keys",
    given=r"Means $\mu_1, \ldots, \mu_n$, orthogonal and of norm 1, $n \geq 3$. Keys $k_i \sim "
    r"\mathcal{N}(\mu_i, \alpha I)$, independent, with a small $\alpha$. Only means are known, so "
    r"that the query is $q = t (\mu_a + \mu_b)$. In the second part, $\Sigma_a = \alpha I + "
    r"\frac{1}{2} \mu_a \mu_a^\top$. $\alpha$ without an index is the variance, $\alpha_i$ a "
    "weight. Moments are evaluated by Gauss–Hermite quadrature, exact here.",
    draw=_draw_noisy_keys,
    letters=_noisy_letters,
    indices=indices_of_keys,
    laws=_noisy_laws,
    steps=(
        Step(
            r"\mathbb{E}\left[k_i^\top q\right]",
            "The mean score of each key. Evaluated by quadrature.",
        ),
        Step(r"= \mu_i^\top q", "Scores are linear in keys."),
        Step(
            r"= t (\delta_{ia} + \delta_{ib})",
            "Means are orthonormal: on average, scores are those without noise.",
        ),
        Step(r"\mathrm{Var}\left[k_i^\top q\right]", "Their variance. Evaluated by quadrature."),
        Step(
            r"= q^\top (\alpha I) \, q",
            r"$\mathrm{Var}[k^\top q] = q^\top \Sigma q$, the same for each key.",
        ),
        Step(r"= \alpha \, t^2 \, \lVert \mu_a + \mu_b \rVert^2", "Insert the query."),
        Step(
            r"= 2 \alpha t^2",
            r"Pythagoras: $\lVert \mu_a + \mu_b \rVert^2 = 1 + 1$. So scores move by about "
            r"$t \sqrt{2 \alpha}$, which is small if $t \ll 1 / \sqrt \alpha$.",
        ),
        Step(
            r"\frac{\alpha_a}{\alpha_b}",
            r"The ratio of both weights, for keys $k_i = \mu_i + \varepsilon_i$ with noise "
            r"$\varepsilon_i$.",
        ),
        Step(r"= e^{(k_a - k_b)^\top q}", "The normalization cancels."),
        Step(
            r"= e^{(\varepsilon_a - \varepsilon_b)^\top q}",
            r"$\mu_a^\top q = \mu_b^\top q = t$: only noise makes a difference.",
        ),
        Step(
            r"\mathrm{Var}\left[(k_a - k_b)^\top q\right]",
            "The variance of that exponent. Evaluated over both keys at once.",
        ),
        Step(
            r"= \mathrm{Var}\left[k_a^\top q\right] + \mathrm{Var}\left[k_b^\top q\right]",
            "Keys are independent.",
        ),
        Step(
            r"= 4 \alpha t^2",
            r"For $\ln n \ll t \ll 1 / \sqrt \alpha$ both weights are near $\frac{1}{2}$: the "
            "query of the means still averages.",
        ),
        Step(
            r"\mathrm{Var}\left[\mu_a^\top \tilde k_a\right]",
            r"Second part: the length of a key $\tilde k_a$ along its mean $\mu_a$, if its "
            r"covariance is $\Sigma_a = \alpha I + \frac{1}{2} \mu_a \mu_a^\top$. Evaluated by "
            "quadrature.",
        ),
        Step(
            r"= \mu_a^\top \left( \alpha I + \frac{1}{2} \mu_a \mu_a^\top \right) \mu_a",
            r"$\mathrm{Var}[k^\top q] = q^\top \Sigma q$ again.",
        ),
        Step(
            r"= \alpha + \frac{1}{2}",
            r"$\mu_a$ has norm 1. For $\alpha \to 0$: $k_a = \gamma \mu_a$ with $\gamma \sim "
            r"\mathcal{N}(1, \frac{1}{2})$, and $k_i = \mu_i$ for all others.",
        ),
        Step(
            r"s = \frac{\beta_a}{\beta_a + \beta_b}",
            r"The share of $v_a$ among the two, where $\beta_j$ are the weights with these keys.",
        ),
        Step(
            r"= \frac{e^{t \gamma}}{e^{t \gamma} + e^t}",
            r"Scores are $k_a^\top q = t \gamma$ and $k_b^\top q = t$; the normalization cancels.",
        ),
        Step(
            r"= \frac{1}{1 + e^{-t (\gamma - 1)}}",
            r"Divide by $e^{t \gamma}$. This is the sigmoid of $t (\gamma - 1)$: with the large "
            "$t$ that gives other keys no weight, it is near 0 or near 1 for most draws of "
            r"$\gamma$.",
        ),
        Step(r"c = \sum_j \beta_j v_j", "The output."),
        Step(
            r"= \frac{e^{t \gamma} v_a + e^t v_b + \sum_{j \neq a, b} v_j}"
            r"{e^{t \gamma} + e^t + n - 2}",
            "Insert the weights.",
        ),
        Step(
            r"\approx s \, v_a + (1 - s) \, v_b",
            r"The difference is at most $(n - 2) e^{-t} \left| \bar v - s v_a - (1 - s) v_b "
            r"\right|$ in every entry, with $\bar v$ the mean of the other values. So the output "
            r"flips between $v_a$ and $v_b$.",
            remainder=lambda x: (
                (x.n - 2)
                * (-x.t).exp()
                * (
                    others(x, x.a, x.b).mean(0) - _share(x) * x.v[x.a] - (1 - _share(x)) * x.v[x.b]
                ).abs()
            ),
            worst=WorstCase(
                r"a large $t$ and $\gamma < 0$", lambda: _keys_of_query(t=8.0, gamma=-1.0)
            ),
        ),
    ),
)


DERIVATIONS = (AVERAGING_QUERY, NOISY_KEYS)
