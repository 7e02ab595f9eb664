"""Positive features with orthogonal directions have a smaller error: theorem 2 of the Performer."""

import math
from functools import cache

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, number, size, sizes
from regard.derivations.expectation import legendre
from regard.derivations.random_features import kernel, letters, shrink
from regard.derivations.tex_scope import Law, Letter, Points

_LENGTHS, _PHI, _THETA = 26, 32, 16
"""Numbers of quadrature nodes for each length, and for both angles of a direction."""
_FAR = 12.0
"""Upper bound of lengths of directions; the density beyond it is 0 in float64."""


def _draw(generator: Generator) -> Inputs:
    """Draw x and y whose sum is short, but long enough that the gain exceeds rounding errors."""
    d = size(generator, 2, 4)
    z: Float64[Tensor, " d"] = normal(generator, d)
    z = number(generator, 0.6, 1.6) * z / torch.linalg.vector_norm(z)
    difference: Float64[Tensor, " d"] = 0.5 * normal(generator, d)
    return Inputs(x=(z + difference) / 2, y=(z - difference) / 2, z=z, **sizes(d=d, m=2))


def _a(x: Inputs) -> Float64[Tensor, ""]:
    """‖z‖²."""
    return x.z @ x.z


def _lengths(d: int) -> tuple[Float64[Tensor, " lengths"], Float64[Tensor, " lengths"]]:
    """Lengths ‖w‖ of w ~ N(0, I) in d dimensions, with their probabilities."""
    r, weights = legendre(0, _FAR, _LENGTHS)
    log = (d - 1) * r.log() - r**2 / 2 - (d / 2 - 1) * math.log(2) - math.lgamma(d / 2)
    return r, weights * log.exp()


def _directions(d: int) -> tuple[Float64[Tensor, "places 2"], Float64[Tensor, " places"]]:
    """Entries of z/‖z‖ along two random orthonormal directions, with their probabilities.

    They are sin θ (cos φ, sin φ) with a uniform φ, where θ has the density
    (d − 2) sin θ cos^(d−3) θ on [0, π/2], or is π/2 for d = 2.
    """
    phi = torch.arange(_PHI, dtype=torch.float64) * (2 * math.pi / _PHI)
    theta, weights = legendre(0, math.pi / 2, _THETA)
    if d == 2:
        theta, weights = theta.new_tensor([math.pi / 2]), weights.new_ones(1)
    else:
        weights = weights * (d - 2) * theta.sin() * theta.cos() ** (d - 3)
    circle = torch.stack([phi.cos(), phi.sin()], 1)
    places = theta.sin()[:, None, None] * circle
    return places.flatten(0, 1), (weights[:, None] / _PHI).expand(-1, _PHI).flatten()


def _products(x: Inputs) -> Points:
    """w_1·z and w_2·z for orthogonal w_1 and w_2."""
    unit = _unit_products(len(x.z))
    return Points(_a(x).sqrt() * unit.values, unit.weights)


@cache
def _unit_products(d: int) -> Points:
    """Return w_1·z and w_2·z for a z of norm 1, over both lengths and all directions."""
    r, r_weights = _lengths(d)
    places, weights = _directions(d)
    grid = torch.meshgrid(*[torch.arange(len(one)) for one in (r, r, places)], indexing="ij")
    first, second, at = (axis.flatten() for axis in grid)
    along = places[at] * torch.stack([r[first], r[second]], 1)
    return Points(along, r_weights[first] * r_weights[second] * weights[at])


def _error(x: Inputs) -> Float64[Tensor, ""]:
    """E[(Λ (e^(w_1·z) + e^(w_2·z))/2 − SM)²] for orthogonal directions."""
    products = _products(x)
    first, second = products.values.T
    error: Tensor = (shrink(x) * (first.exp() + second.exp()) / 2 - kernel(x)) ** 2
    return products.weights @ error


def _independent_error(x: Inputs) -> Float64[Tensor, ""]:
    """MSE₊ = e^a SM² (1 − e^(−a))/m."""
    return _a(x).exp() * kernel(x) ** 2 * (1 - (-_a(x)).exp()) / x.m


def _letters(x: Inputs) -> dict[str, Letter]:
    """Return the letters of features, and both errors."""
    return {**letters(x), "MSE+": _independent_error(x), "MSEort": _error(x)}


def _laws(x: Inputs) -> dict[str, Law]:
    """The lengths r_i, an entry c of a uniform unit vector, and s_i = w_i·z."""
    lengths, (places, weights) = Points(*_lengths(len(x.z))), _directions(len(x.z))
    entry = Points(places[:, 0], weights)
    return {"r1": lengths, "r2": lengths, "c": entry, "s": _products(x)}


def _short() -> Inputs:
    """x + y of length 0.2."""
    z = torch.tensor([0.2, 0.0]).double()
    return Inputs(x=z, y=torch.zeros_like(z), z=z, **sizes(d=2, m=2))


_SHORT = WorstCase("a small $a$", _short)

ORTHOGONAL_FEATURES = Derivation(
    name="orthogonal-features",
    title="Orthogonal directions reduce the error of positive features",
    given=r"Positive features as before: $\mathrm{SM} = e^{x \cdot y}$, $z = x + y$, $a = \lVert "
    r"z \rVert^2$, $\Lambda = e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2}$, and "
    r"the estimate $\Lambda \frac{1}{m} \sum_i e^{s_i}$ with $s_i = w_i \cdot z$. Its error is "
    r"$\mathrm{MSE}_{+} = \frac{1}{m} e^a \mathrm{SM}^2 (1 - e^{-a})$ for independent directions. "
    r"Now $w_i = r_i u_i$ with $m \leq d$ uniform orthonormal $u_i$ and independent lengths $r_i "
    r"\sim \chi_d$, $d \geq 2$. The result is theorem 2 of Choromanski et al. (2021). Evaluated "
    "with $m = 2$ by quadrature over both lengths and all directions; series are cut where terms "
    "are below rounding.",
    draw=_draw,
    letters=_letters,
    laws=_laws,
    steps=(
        Step(
            r"\mathbb{E}\left[ e^{s_1} \right]",
            "One direction by itself. Evaluated over its length and all directions.",
        ),
        Step(
            r"= e^{a/2}",
            r"A uniform direction with a length from $\chi_d$ is $\mathcal{N}(0, I)$. So each "
            "term, and the estimate, is unbiased as before.",
        ),
        Step(
            r"\mathrm{MSE}_{\mathrm{ort}}",
            r"Mean squared error of the estimate with orthogonal directions.",
        ),
        Step(
            r"= \frac{1}{m} \Lambda^2 \, \mathrm{Var}\left[ e^{s_1} \right] + \frac{m - "
            r"1}{m} \Lambda^2 \, \mathrm{Cov}\left[ e^{s_1}, e^{s_2} \right]",
            "Variance of a mean of $m$ terms: $m$ variances and $m (m - 1)$ covariances over "
            "$m^2$, all equal by symmetry.",
        ),
        Step(
            r"= \mathrm{MSE}_{+} + \frac{m - 1}{m} \Lambda^2 \, \mathrm{Cov}\left[ e^{s_1}, "
            r"e^{s_2} \right]",
            "The first term is the error of independent directions. It remains to show that the "
            "covariance is negative.",
        ),
        Step(
            r"\mathbb{E}\left[ e^{s_1} e^{s_2} \right]",
            r"For orthogonal directions, $w_1 + w_2$ has the length $\sqrt{r_1^2 + r_2^2}$ and a "
            "uniform direction.",
        ),
        Step(
            r"= \sum_{k \geq 0} \frac{a^k}{(2k)!} \, \mathbb{E}\left[ (r_1^2 + r_2^2)^k \right] "
            r"\mathbb{E}\left[ c^{2k} \right]",
            r"Series of the exponential of $(w_1 + w_2) \cdot z = \sqrt{r_1^2 + r_2^2} \, \sqrt a "
            r"\, c$, with $c$ an entry of a uniform unit vector, independent of the lengths. Odd "
            "powers of $c$ have mean 0.",
        ),
        Step(
            r"= \sum_{k \geq 0} \frac{a^k}{(2k)!} \cdot \frac{2^k \, \Gamma(k + d)}{\Gamma(d)} "
            r"\cdot \frac{(2k)! \; \Gamma(d/2)}{4^k \, k! \; \Gamma(k + d/2)}",
            r"$r_1^2 + r_2^2 \sim \chi^2_{2d}$ and $c^2 \sim \mathrm{Beta}(\frac{1}{2}, \frac{d - "
            r"1}{2})$ have these moments.",
        ),
        Step(
            r"= \sum_{k \geq 0} \frac{a^k}{k!} \prod_{j=0}^{k-1} \frac{d + j}{d + 2j}",
            r"$\Gamma(k + s) = \Gamma(s) \prod_{j=0}^{k-1} (s + j)$; the powers of 2 enter the "
            "denominators.",
        ),
        Step(r"-\mathrm{Cov}\left[ e^{s_1}, e^{s_2} \right]", "What orthogonal directions gain."),
        Step(
            r"= e^{a} - \sum_{k \geq 0} \frac{a^k}{k!} \prod_{j=0}^{k-1} \frac{d + j}{d + 2j}",
            r"$\mathbb{E}[e^{s_1}]^2 = e^a$.",
        ),
        Step(
            r"= \sum_{k \geq 1} \frac{a^k}{k!} \left( 1 - \prod_{j=0}^{k-1} \frac{d + j}{d + 2j} "
            r"\right)",
            r"Series of $e^a$; terms $k = 0$ cancel. Every term is at least 0: the covariance is "
            "negative.",
        ),
        Step(
            r"\geq \sum_{k \geq 1} \frac{a^k}{k!} \cdot \frac{2 - 2^{2-k}}{d + 2}",
            r"Term by term. For $k = 1$ both are 0, and for $k = 2$ both are $\frac{1}{d + 2}$. "
            r"For $k \geq 3$ the product is at most $\frac{d + 1}{d + 2} \cdot \frac{d + 2}{d + "
            r"4}$, so that the left-hand term has at least $\frac{3}{d + 4} \geq \frac{2}{d + 2}$.",
            worst=_SHORT,
        ),
        Step(
            r"= \frac{2}{d + 2} \left( e^{a} - 2 e^{a/2} + 1 \right)",
            r"$\sum_{k \geq 1} \frac{a^k}{k!} = e^a - 1$ and $\sum_{k \geq 1} \frac{a^k}{k! \, "
            "2^k} = e^{a/2} - 1$.",
        ),
        Step(r"= \frac{2}{d + 2} \left( e^{a/2} - 1 \right)^2", "A square."),
        Step(
            r"\mathrm{MSE}_{+} - \mathrm{MSE}_{\mathrm{ort}}",
            "Together, what orthogonal directions gain:",
        ),
        Step(
            r"\geq \frac{m - 1}{m} \Lambda^2 \cdot \frac{2}{d + 2} \left( e^{a/2} - 1 \right)^2",
            "Insert the bound on the covariance.",
            worst=_SHORT,
        ),
        Step(
            r"= \frac{2 (m - 1)}{m (d + 2)} \left( \mathrm{SM} - \Lambda \right)^2",
            r"$\Lambda e^{a/2} = \mathrm{SM}$. With $m \geq 2$, orthogonal directions have a "
            r"smaller error for every $x$ and $y$ with $x + y \neq 0$. The cost is one "
            "orthogonalization per draw.",
        ),
    ),
)

DERIVATIONS = (ORTHOGONAL_FEATURES,)
