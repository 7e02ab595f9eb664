"""Random features of the softmax kernel (Choromanski et al., 2021): means and errors."""

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, number, orthonormal, size, sizes
from regard.derivations.expectation import density, expect, integrate
from regard.derivations.tex_scope import Law, Letter, Normal

_NODES = 24
_FAR = 14.0
"""Half of the edge length of the integration cube for directions."""


def _draw_pair(generator: Generator) -> Inputs:
    d, m = size(generator, 1, 2), size(generator, 1, 2)
    q: Float64[Tensor, " d"] = 0.6 * normal(generator, d)
    k: Float64[Tensor, " d"] = 0.6 * normal(generator, d)
    scale = d**0.25
    return Inputs(q=q, k=k, x=q / scale, y=k / scale, **sizes(d=d, m=m))


def _over_all(x: Inputs, f: Callable[[Tensor], Tensor]) -> Float64[Tensor, ""]:
    """E[f(w_1, …, w_m)] over all entries of all directions at once."""
    m, d = int(x.m), len(x.x)
    zero = torch.zeros(m * d, dtype=torch.float64)
    return expect(lambda w: f(w.view(-1, m, d)), zero, nodes=_NODES)


def shrink(x: Inputs) -> Float64[Tensor, ""]:
    """Λ = e^(−(‖x‖² + ‖y‖²)/2)."""
    return (-(x.x @ x.x + x.y @ x.y) / 2).exp()


def kernel(x: Inputs) -> Float64[Tensor, ""]:
    """SM = e^(x·y)."""
    return (x.x @ x.y).exp()


def _z(x: Inputs) -> Float64[Tensor, " d"]:
    return x.x + x.y


def _a(x: Inputs) -> Float64[Tensor, ""]:
    """‖x + y‖²."""
    return _z(x) @ _z(x)


def _before_square(x: Inputs) -> Float64[Tensor, ""]:
    """∫ (2π)^(−d/2) e^(−‖w‖²/2 + w·z) dw."""
    return integrate(lambda w: density(w) * (w @ _z(x)).exp(), -_FAR, _FAR, d=len(x.x), nodes=120)


def _after_square(x: Inputs) -> Float64[Tensor, ""]:
    """∫ (2π)^(−d/2) e^(−‖w − z‖²/2) dw."""
    return integrate(lambda w: density(w, _z(x)), -_FAR, _FAR, d=len(x.x), nodes=120)


def letters(x: Inputs) -> dict[str, Letter]:
    """Return the letters z, a, b, SM and Λ for derivations of features."""
    b = (x.x - x.y) @ (x.x - x.y)
    return {"z": _z(x), "a": _a(x), "b": b, "SM": kernel(x), "Lambda": shrink(x)}


def _laws(x: Inputs) -> dict[str, Law]:
    """All directions, and one of them (w)."""
    one, every = torch.zeros_like(x.x), torch.zeros(int(x.m), len(x.x)).double()
    return {"w": Normal(one, 1.0, 2 * _NODES), "W": Normal(every, 1.0, _NODES)}


POSITIVE_FEATURES = Derivation(
    name="positive-features",
    title="Positive features of the softmax kernel",
    given=r"A query and a key $q, k \in \mathbb{R}^d$, $x = q / d^{1/4}$ and $y = k / d^{1/4}$. "
    r"Directions $w_1, \ldots, w_m \sim \mathcal{N}(0, I)$ and the features $\phi(x) = "
    r"\frac{1}{\sqrt m} \left( e^{w_1 \cdot x - \lVert x \rVert^2 / 2}, \ldots, e^{w_m \cdot x - "
    r"\lVert x \rVert^2 / 2} \right)$ (Choromanski et al., 2021, lemma 1). The course writes "
    r"$\exp(Q K^\top) / \sqrt d$ for $\exp(Q K^\top / \sqrt d)$ and $\exp(Q' K'^\top)$ for $Q' "
    r"K'^\top$: the product of features is itself the estimate of the exponential.",
    draw=_draw_pair,
    letters=letters,
    laws=_laws,
    defined={"phi(u)": r"\frac{1}{\sqrt m} \exp(W u - \lVert u \rVert^2 / 2)"},
    steps=(
        Step(r"e^{q \cdot k / \sqrt d}", "The similarity of softmax attention."),
        Step(r"= e^{x \cdot y}", r"$d^{1/4} \, d^{1/4} = \sqrt d$. Call it $\mathrm{SM}$."),
        Step(
            r"\mathbb{E}\left[ \phi(x)^\top \phi(y) \right]",
            "Mean of the estimate. Evaluated by quadrature over all directions at once.",
        ),
        Step(
            r"= \frac{1}{m} \sum_{i=1}^{m} \mathbb{E}\left[ e^{w \cdot x - \lVert x \rVert^2 / "
            r"2} \; e^{w \cdot y - \lVert y \rVert^2 / 2} \right]",
            "Insert the features. All terms are equal: directions have the distribution of $w$.",
        ),
        Step(
            r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \; \mathbb{E}\left[ "
            r"e^{w \cdot z} \right], \quad z = x + y",
            "Collect exponents; norms are constant.",
        ),
        Step(
            r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \int (2 \pi)^{-d/2} "
            r"\, e^{-\lVert w \rVert^2 / 2 + w \cdot z} \, \mathrm{d}w",
            r"The density of $\mathcal{N}(0, I)$. Evaluated by Gauss–Legendre quadrature.",
            value=lambda x: shrink(x) * _before_square(x),
        ),
        Step(
            r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \; e^{\lVert z "
            r"\rVert^2 / 2} \int (2 \pi)^{-d/2} \, e^{-\lVert w - z \rVert^2 / 2} \, \mathrm{d}w",
            r"Complete the square: $-\frac{1}{2} \lVert w \rVert^2 + w \cdot z = -\frac{1}{2} "
            r"\lVert w - z \rVert^2 + \frac{1}{2} \lVert z \rVert^2$.",
            value=lambda x: shrink(x) * (_a(x) / 2).exp() * _after_square(x),
        ),
        Step(
            r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \; e^{\lVert x + y "
            r"\rVert^2 / 2}",
            r"The integral is that of the density of $\mathcal{N}(z, I)$, which is 1.",
        ),
        Step(
            r"= e^{x \cdot y}",
            r"$\lVert x + y \rVert^2 = \lVert x \rVert^2 + 2 x \cdot y + \lVert y \rVert^2$. The "
            "estimate is unbiased, and every feature is positive: so are all weights and "
            "normalizers.",
        ),
        Step(
            r"\Lambda \, \mathbb{E}\left[ \cosh(w \cdot z) \right], \quad \Lambda = e^{-\left( "
            r"\lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2}",
            r"Hyperbolic features: $e^{w \cdot x}$ and $e^{-w \cdot x}$ for each direction.",
        ),
        Step(
            r"= \frac{1}{2} \Lambda \left( \mathbb{E}\left[ e^{w \cdot z} \right] + "
            r"\mathbb{E}\left[ e^{-w \cdot z} \right] \right)",
            "Definition of cosh.",
        ),
        Step(
            r"= \Lambda \, e^{\lVert z \rVert^2 / 2}",
            r"$w$ and $-w$ have one distribution; both means are $e^{\lVert z \rVert^2 / 2}$.",
        ),
        Step(r"= e^{x \cdot y}", "As before: unbiased too."),
    ),
)


def _draw_short_pair(generator: Generator) -> Inputs:
    """Draw x + y and x − y short enough for exact quadrature, and not shorter than ½."""
    d, m = size(generator, 1, 2), size(generator, 1, 2)
    z, difference = (
        number(generator, 0.5, 1.4) * orthonormal(generator, 1, d)[0] for _ in range(2)
    )
    x: Float64[Tensor, " d"] = (z + difference) / 2
    y: Float64[Tensor, " d"] = (z - difference) / 2
    return Inputs(x=x, y=y, **sizes(m=m))


def _error(x: Inputs, factor: Tensor, f: Callable[[Tensor], Tensor]) -> Float64[Tensor, ""]:
    """E[(factor · mean of f(w_1), …, f(w_m) − SM)²], over all directions at once."""
    return _over_all(x, lambda w: (factor * f(w).mean(1) - kernel(x)) ** 2)


def _errors(x: Inputs) -> dict[str, Letter]:
    """Return the letters of features, and the three errors."""
    estimates = {
        "MSEtrig": _error(x, 1 / shrink(x), lambda w: (w @ (x.x - x.y)).cos()),
        "MSE+": _error(x, shrink(x), lambda w: (w @ _z(x)).exp()),
        "MSEhyp": _error(x, shrink(x), lambda w: (w @ _z(x)).cosh()),
    }
    return {**letters(x), **estimates}


def _long() -> Inputs:
    """x + y of length 2."""
    return Inputs(x=torch.tensor([1.2]).double(), y=torch.tensor([0.8]).double(), **sizes(m=1))


FAVOR_ERRORS = Derivation(
    name="favor-errors",
    title="Errors of the features of FAVOR+",
    given=r"$x = q / d^{1/4}$, $y = k / d^{1/4}$, $\mathrm{SM} = e^{x \cdot y}$, $z = x + y$, $a "
    r"= \lVert x + y \rVert^2$, $b = \lVert x - y \rVert^2$, $\Lambda = e^{-\left( \lVert x "
    r"\rVert^2 + \lVert y \rVert^2 \right) / 2}$ and independent $w_1, \ldots, w_m \sim "
    r"\mathcal{N}(0, I)$. Three unbiased estimates of $\mathrm{SM}$: trigonometric, $\Lambda^{-1} "
    r"\frac{1}{m} \sum_i \cos(w_i \cdot (x - y))$; positive, $\Lambda \frac{1}{m} \sum_i e^{w_i "
    r"\cdot z}$; hyperbolic, $\Lambda \frac{1}{m} \sum_i \cosh(w_i \cdot z)$. Their mean squared "
    "errors are lemma 2 of Choromanski et al. (2021). Orthogonal directions have a derivation of "
    "their own. Expectations are evaluated by Gauss–Hermite quadrature.",
    draw=_draw_short_pair,
    letters=_errors,
    laws=_laws,
    steps=(
        Step(
            r"\mathrm{MSE}_{\mathrm{trig}}",
            "Mean squared error of the trigonometric estimate. Evaluated over all directions at "
            "once.",
        ),
        Step(
            r"= \frac{1}{m} \, e^{\lVert x \rVert^2 + \lVert y \rVert^2} \, \mathrm{Var}\left[ "
            r"\cos(w \cdot (x - y)) \right]",
            "The estimate is unbiased, so that its error is its variance; a mean of $m$ "
            r"independent terms has $\frac{1}{m}$ of theirs, and the factor $\Lambda^{-1}$ is "
            "squared.",
        ),
        Step(
            r"= \frac{1}{m} \, e^{\lVert x \rVert^2 + \lVert y \rVert^2} \left( \mathbb{E}\left[ "
            r"\cos^2(w \cdot (x - y)) \right] - \mathbb{E}\left[ \cos(w \cdot (x - y)) \right]^2 "
            r"\right)",
            r"$\mathrm{Var}[c] = \mathbb{E}[c^2] - \mathbb{E}[c]^2$.",
        ),
        Step(
            r"= \frac{1}{m} \, e^{\lVert x \rVert^2 + \lVert y \rVert^2} \left( \frac{1}{2} + "
            r"\frac{1}{2} \mathbb{E}\left[ \cos(2 w \cdot (x - y)) \right] - \mathbb{E}\left[ "
            r"\cos(w \cdot (x - y)) \right]^2 \right)",
            r"$\cos^2 u = \frac{1}{2} (1 + \cos 2u)$.",
        ),
        Step(
            r"= \frac{1}{m} \, e^{\lVert x \rVert^2 + \lVert y \rVert^2} \left( \frac{1}{2} + "
            r"\frac{1}{2} e^{-2b} - e^{-b} \right)",
            r"$w \cdot (x - y)$ is normal with variance $b$: $\mathbb{E}[\cos(s \, w \cdot (x - "
            "y))] = e^{-s^2 b / 2}$.",
        ),
        Step(
            r"= \frac{1}{2m} \, e^{\lVert x \rVert^2 + \lVert y \rVert^2} \left( 1 - e^{-b} "
            r"\right)^2",
            "A square.",
        ),
        Step(
            r"= \frac{1}{2m} \, e^{a} \, \mathrm{SM}^{-2} \left( 1 - e^{-b} \right)^2",
            r"$\lVert x \rVert^2 + \lVert y \rVert^2 = a - 2 x \cdot y$. The smaller the kernel, "
            "the larger the error: weights near 0 may be negative.",
        ),
        Step(
            r"\mathrm{MSE}_{+}",
            "Mean squared error of the positive estimate. Evaluated over all directions at once.",
        ),
        Step(
            r"= \frac{1}{m} \, \Lambda^2 \, \mathrm{Var}\left[ e^{w \cdot z} \right]",
            "Unbiased, and a mean of independent terms.",
        ),
        Step(
            r"= \frac{1}{m} \, \Lambda^2 \left( \mathbb{E}\left[ e^{2 w \cdot z} \right] - "
            r"\mathbb{E}\left[ e^{w \cdot z} \right]^2 \right)",
            r"$\left( e^{w \cdot z} \right)^2 = e^{2 w \cdot z}$.",
        ),
        Step(
            r"= \frac{1}{m} \, \Lambda^2 \left( e^{2a} - e^{a} \right)",
            r"$\mathbb{E}[e^{s \, w \cdot z}] = e^{s^2 a / 2}$.",
        ),
        Step(
            r"= \frac{1}{m} \, \Lambda^2 e^{2a} \left( 1 - e^{-a} \right)", r"Factor out $e^{2a}$."
        ),
        Step(
            r"= \frac{1}{m} \, e^{a} \, \mathrm{SM}^2 \left( 1 - e^{-a} \right)",
            r"$\Lambda e^{a/2} = \mathrm{SM}$. Now the error is small where the kernel is.",
        ),
        Step(
            r"\mathrm{MSE}_{\mathrm{hyp}}",
            "Mean squared error of the hyperbolic estimate, which has $2m$ features. Evaluated "
            "over all directions at once.",
        ),
        Step(
            r"= \frac{1}{m} \, \Lambda^2 \, \mathrm{Var}\left[ \cosh(w \cdot z) \right]",
            "Unbiased, and a mean of independent terms.",
        ),
        Step(
            r"= \frac{1}{m} \, \Lambda^2 \left( \frac{1}{2} + \frac{1}{2} e^{2a} - e^{a} \right)",
            r"$\cosh^2 u = \frac{1}{2} (1 + \cosh 2u)$, and $\mathbb{E}[\cosh(s \, w \cdot z)] = "
            r"e^{s^2 a / 2}$.",
        ),
        Step(
            r"= \frac{1}{2m} \, \Lambda^2 e^{2a} \left( 1 - e^{-a} \right)^2",
            r"A square, with $e^{2a}$ factored out.",
        ),
        Step(
            r"= \frac{1}{2} \left( 1 - e^{-a} \right) \mathrm{MSE}_{+}",
            "Less than half of the error of positive features with as many directions.",
        ),
        Step(r"\mathrm{MSE}_{\mathrm{hyp}}", r"Compared with $2m$ positive features:"),
        Step(
            r"\leq \frac{1}{2} \, \mathrm{MSE}_{+}",
            r"$1 - e^{-a} \leq 1$. And $\frac{1}{2} \mathrm{MSE}_{+}$ is the error of $2m$ "
            "positive features.",
            worst=WorstCase("a large $a$", _long),
        ),
    ),
)

DERIVATIONS = (POSITIVE_FEATURES, FAVOR_ERRORS)
