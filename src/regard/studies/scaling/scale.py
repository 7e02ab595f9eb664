"""Division of products of queries and keys by √h."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Softmax
from regard.studies.figure import Chart, Line, chart, figure, formula_chart, series
from regard.studies.finding import Measurements, at_most, equal, informational
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import mean_error, normal

Vectors: TypeAlias = Float[Tensor, "*shape h"]
WIDTHS = (4, 16, 64, 256, 1024)
"""Widths of the heads whose softmax is measured."""
_BATCH, _QUERIES = 8, 32
_WIDTH_AXIS: dict[str, Any] = {"x": "$h$", "x_scale": "log"}


class Draw(NamedTuple):
    """Distribution of queries and keys: each entry from N(mean, sigma²)."""

    mean: float
    sigma: float
    correlation: float
    seed: int

    def pairs(self, h: int, *shape: int) -> tuple[Vectors, Vectors]:
        """Return queries and keys of width h; entries of a query correlate with its key's."""
        first, second = normal(self.seed, 2, *shape, h)
        second = self.correlation * first + math.sqrt(1 - self.correlation**2) * second
        return self.mean + self.sigma * first, self.mean + self.sigma * second

    def variance(self, h: float) -> float:
        """Return the variance of q·k by the formula for independent queries and keys."""
        return h * self.sigma**4 + 2 * self.sigma**2 * h * self.mean**2

    def among_keys(self, h: int) -> float:
        """Return the variance of q·k among the keys of one query."""
        return h * self.sigma**4 + self.sigma**2 * h * self.mean**2


Spread: TypeAlias = Mapping[str, float]
"""Entropy of softmax weights in nats, and Σ ∂α_i/∂s_i = 1 − Σ α_i², their gradient; both averaged
over queries."""


@study()
def scale(
    h: Annotated[int, Meta(ge=2, le=1024)] = 64,
    mean: Annotated[float, Meta(ge=-1, le=1)] = 0.5,
    sigma: Annotated[float, Meta(gt=0, le=4)] = 1.0,
    correlation: Annotated[float, Meta(ge=0, le=1)] = 0.0,
    n: Annotated[int, Meta(ge=16, le=256)] = 64,
    draws: Annotated[int, Meta(ge=1000, le=20000)] = 10000,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Why are products of queries and keys divided by √h?

    With independent q, k ~ N(μ, σ²I), q·k has mean ‖μ‖² and variance hσ⁴ + 2σ²‖μ‖². If
    all entries of μ are equal, the standard deviation after the division by √h doesn't depend on h,
    and softmax keeps its entropy and its gradient at any width. Without the division it loses both.

    $$ \mathrm{E}[q \cdot k] = \|\mu\|^2, \quad \mathrm{Var}[q \cdot k] = h \sigma^4 + 2 \sigma^2
    \|\mu\|^2 $$

    Products are drawn at one width, and softmax over n keys at several. For a standard deviation s
    of the scores that is small compared to √(2 ln n), the entropy is about ln n − s²/2.

    Figure. Against the width h: the variance of products grows in proportion (lines: formula; dots:
    measured); the entropy of softmax, which is at most ln n (dotted), falls to near 0, and its
    gradient with it. After the division by √h, all three are constant.

    Args:
        h: width of queries and keys
        mean: each entry of μ
        sigma: σ, standard deviation of each entry
        correlation: correlation of a query's entries with those of its key
        n: number of keys
        draws: number of pairs drawn
    """
    draw = Draw(mean, sigma, correlation, seed)
    query, key = draw.pairs(h, draws)
    yield from moments((query * key).sum(-1), h * mean**2, draw.variance(h))
    scaled = [spread(draw, width, n, Softmax()) for width in WIDTHS]
    plain = [spread(draw, width, n, Softmax(scaled=False)) for width in WIDTHS]
    doubled = spread(draw._replace(sigma=2 * sigma), WIDTHS[-1], n, Softmax())
    most, size = math.log(n), f"h = {WIDTHS[-1]}"
    among = draw.among_keys(WIDTHS[-1]) / WIDTHS[-1]
    entropy, gradient = most - among / 2, 1 - math.exp(among) / n
    yield equal(f"entropy, scaled, {size}", scaled[-1]["entropy"], entropy, within=0.1 * most)
    yield equal(f"gradient, scaled, {size}", scaled[-1]["gradient"], gradient, within=0.1)
    yield at_most(f"entropy / ln n, unscaled, {size}", plain[-1]["entropy"] / most, 0.1)
    yield at_most(f"gradient, unscaled, {size}", plain[-1]["gradient"], 0.2)
    for name, value in doubled.items():
        yield informational(f"{name}, scaled, {size}, σ doubled", value)
    uniform = Line(y=most, label=r"$\ln n$")
    yield figure(
        _variances(draw),
        _by_width(plain, scaled, "entropy", 1.1 * most, uniform),
        _by_width(plain, scaled, "gradient", 1),
    )


def _by_width(
    plain: Sequence[Spread], scaled: Sequence[Spread], name: str, limit: float, *lines: Line
) -> Chart:
    """Return a property of softmax by width, with and without the division by √h."""
    curves = [
        series(WIDTHS, [one[name] for one in spreads], style="line with dots", color=color)
        for color, spreads in {1: plain, 0: scaled}.items()
    ]
    return chart(*curves, *lines, title=name, y_limits=(0, limit), **_WIDTH_AXIS)


def _variances(draw: Draw) -> Chart:
    """Return the variance of products by width, with and without the division by √h."""
    pairs = {h: draw.pairs(h, 1000) for h in WIDTHS}
    measured = {h: float((query * key).sum(-1).var()) for h, (query, key) in pairs.items()}
    scaled, plain = r"$q \cdot k / \sqrt{h}$", r"$q \cdot k$"
    return formula_chart(
        WIDTHS,
        {scaled: lambda h: draw.variance(h) / h, plain: draw.variance},
        {scaled: {h: variance / h for h, variance in measured.items()}, plain: measured},
        title="variance",
        y_scale="log",
        **_WIDTH_AXIS,
    )


def moments(products: Float[Tensor, " draws"], mean: float, variance: float) -> Measurements:
    """Yield mean and variance, each with a tolerance of four standard errors."""
    squares = (products - products.mean()).square()
    yield equal("mean of q·k", products.mean(), mean, within=4 * mean_error(products))
    yield equal("variance of q·k", products.var(), variance, within=4 * mean_error(squares))


def spread(draw: Draw, h: int, n: int, attention: Softmax) -> Spread:
    """Return entropy and gradient of softmax over n keys of width h."""
    queries, keys = draw.pairs(h, _BATCH, 1, max(n, _QUERIES))
    weights = attention.weights(queries[:, :, :_QUERIES], keys[:, :, :n])
    entropy, gradient = torch.special.entr(weights).sum(-1), 1 - weights.square().sum(-1)
    return {"entropy": float(entropy.mean()), "gradient": float(gradient.mean())}
