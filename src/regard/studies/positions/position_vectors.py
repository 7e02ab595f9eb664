"""Vectors of positions: added to words, concatenated, equal to biases on scores, and shifted."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor, nn
from torch.linalg import vecdot

from regard.attention import Softmax
from regard.attention.contract_cases import TableBias
from regard.positions import RelativeBias, ShawVectors, Sinusoidal, shift_matrix
from regard.positions.rotary import frequencies
from regard.studies.costs import exponent
from regard.studies.figure import Chart, Line, chart, figure, formula_chart, heat_map, series
from regard.studies.finding import at_most, equal, informational
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, largest, mean_error, normal

LENGTH = 512
"""Number of positions from which those of a pair are drawn."""
PAIRS = 2000
WIDTHS = (16, 32, 64, 128, 256, 512)
MATRICES = 16
"""Number of draws of W_q and W_k."""
ROUNDING = 1e-10
BASE = 10_000.0
TURN = 2 * math.pi
Pairs: TypeAlias = Float[Tensor, "4 pairs d"]
"""Words and positions of queries, then of keys: x₁, p₁, x₂, p₂."""
Words: TypeAlias = Float[Tensor, "3 1 heads n d"]
"""Queries, keys and values of heads."""
Positions: TypeAlias = Float[Tensor, "2 1 heads n d"]
"""Position vectors of queries and of keys."""


@study()
def adding(
    d: Annotated[int, Meta(ge=2, le=1024, multiple_of=2)] = 256,
    sigma: Annotated[float, Meta(ge=0.1, le=2)] = 1.0,
    steps: Annotated[int, Meta(ge=1, le=256)] = 1,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Are positions added to words, or concatenated with them?

    Adding gives the score two cross terms of word and position, which concatenation doesn't have.
    Relative to x·x of a word with itself they fall as 1/√d, here below a tenth; relative to x₁·x₂
    of two different words they don't fall. With a general W_qᵀW_k, both have cross terms.

    $$ (x_1 + p_1)^\top (x_2 + p_2) = x_1^\top x_2 + x_1^\top p_2 + p_1^\top x_2 + p_1^\top p_2,
    \quad [x_1, p_1]^\top [x_2, p_2] = x_1^\top x_2 + p_1^\top p_2 $$

    Words are drawn as x ~ N(0, σ²I); positions p are sinusoids of length √(d/2).

    Figure. Size of the terms against the width. The product of a word with itself and that of close
    positions grow as d. The cross terms grow as √d, like the product of two different words. Lines
    and dashes: formulas. Dots: measured.

    Args:
        d: width
        sigma: standard deviation of a word's entries
        steps: distance of the two positions
    """
    draw = torch.Generator().manual_seed(seed)
    few, pairs = (draw_pairs(n, d, sigma, steps, draw) for n in (8, PAIRS))
    drawn = {width: draw_pairs(PAIRS, width, sigma, steps, draw) for width in WIDTHS}
    sizes = {width: float(cross_terms(each).std()) for width, each in drawn.items()}
    general = general_ratios(pairs, draw)
    of_sum, of_both = score_errors(few)
    yield at_most("largest |score of x + p − sum of its four terms|", of_sum, 1e-9)
    yield at_most("largest |score of [x, p] − (x₁·x₂ + p₁·p₂)|", of_both, 1e-9)
    x1, _, x2, _ = pairs
    cross, same = float(cross_terms(pairs).std()), float(vecdot(x1, x1).mean())
    yield at_most("cross terms / x·x of a word with itself", cross / same, 0.1)
    slope = exponent(WIDTHS, [s / (sigma**2 * width) for width, s in sizes.items()])
    within = 4 / math.sqrt(2 * PAIRS * len(WIDTHS) * np.log(WIDTHS).var())
    yield equal("exponent of d in cross terms / x·x", slope, -0.5, within)
    name = "cross terms / terms of words, random W_q and W_k"
    yield equal(name, general.mean(), 1 / sigma, within=4 * mean_error(general))
    ratio = cross / float(vecdot(x1, x2).std())
    within = 4 / sigma * math.sqrt((1 + 1.5 / d) / PAIRS)
    yield equal("cross terms / x₁·x₂ of two different words", ratio, 1 / sigma, within)
    yield _sizes_by_width(sizes, sigma, steps)


def _sizes_by_width(sizes: Mapping[int, float], sigma: float, steps: int) -> Chart:
    cross, distance = r"cross terms, $\sigma \sqrt{d}$", torch.tensor(steps)
    words = r"$x_1 \cdot x_2$, two words, $\sigma^2 \sqrt{d}$"
    return formula_chart(
        WIDTHS,
        {
            r"$x \cdot x$, a word with itself": lambda d: sigma**2 * d,
            cross: lambda d: sigma * d**0.5,
            rf"$p \cdot p$, distance {steps}": lambda d: sinusoid_products(distance, int(d)),
        },
        {cross: sizes},
        series(WIDTHS, [sigma**2 * d**0.5 for d in WIDTHS], words, "dashes", color=3),
        x="width $d$",
        y="size",
        x_scale="log",
        y_scale="log",
        x_ticks=list(WIDTHS),
    )


def draw_pairs(n: int, d: int, sigma: float, steps: int, draw: torch.Generator) -> Pairs:
    """Draw pairs of words at positions with a distance of `steps`."""
    x1, x2 = sigma * draw_normal(draw, 2, n, d)
    vectors = Sinusoidal(length=LENGTH + steps, d=d).vectors
    first = torch.randint(LENGTH, (n,), generator=draw)
    return torch.stack([x1, vectors[first], x2, vectors[first + steps]])


def cross_terms(pairs: Pairs) -> Float[Tensor, " pairs"]:
    """Return x₁·p₂ + p₁·x₂."""
    x1, p1, x2, p2 = pairs
    cross: Tensor = vecdot(x1, p2) + vecdot(p1, x2)
    return cross


def score_errors(pairs: Pairs) -> tuple[float, float]:
    """Return largest errors of the four terms as scores of x + p, and of the two of [x, p]."""
    x1, p1, x2, p2 = pairs
    words, positions, cross = x1 @ x2.mT, p1 @ p2.mT, x1 @ p2.mT + p1 @ x2.mT
    both = torch.cat([x1, p1], -1), torch.cat([x2, p2], -1)
    added = _score_error(x1 + p1, x2 + p2, words + cross + positions)
    return added, _score_error(*both, words + positions)


def _score_error(
    query: Float[Tensor, "n d"], key: Float[Tensor, "n d"], scores: Float[Tensor, "n n"]
) -> float:
    """Return the largest difference of scores from q·k; both relative to those of the first key."""
    weights = Softmax().weights(query[None, None], key[None, None])[0, 0].log()
    found = (weights - weights[:, :1]) * math.sqrt(query.shape[1])
    return largest(found - (scores - scores[:, :1]))


def general_ratios(pairs: Pairs, draw: torch.Generator) -> Float[Tensor, " draws"]:
    """Return ratios of cross terms to terms of words for random W_q and W_k of [x, p].

    Both are root mean squares; each draw of the matrices has its own pairs.
    """
    d, ratios = pairs.shape[-1], []
    for part in pairs.chunk(MATRICES, dim=1):
        projected = torch.stack([x @ draw_normal(draw, d, d) / math.sqrt(2 * d) for x in part])
        words = vecdot(projected[0], projected[2])
        ratios.append((cross_terms(projected).square().mean() / words.square().mean()).sqrt())
    return torch.stack(ratios)


@study()
def relative_bias(
    length: Annotated[int, Meta(ge=3, le=128)] = 16,
    heads: Annotated[int, Meta(ge=1, le=16)] = 4,
    clip: Annotated[int, Meta(ge=1, le=128)] = 4,
    d: Annotated[int, Meta(ge=2, le=128, multiple_of=2)] = 8,
    scaled: bool = False,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which bias on the scores equals concatenated positions in queries and keys?

    π_ij = q_i·k_j of the position vectors, exactly. If it depends on i − j alone, m heads learn
    (2(T − 1) + 1)m parameters, or (2k + 1)m if distances are clipped at k.

    $$ a_i = \frac{\sum_j e^{q_i^\top k_j + \pi_{ij}} v_j}{\sum_j e^{q_i^\top k_j + \pi_{ij}}},
    \quad \pi_{ij} = q_i^{pos} \cdot k_j^{pos} $$

    The outputs and weights are equal for unscaled scores.

    Figure. The bias of sinusoids by query and key. Each diagonal, a distance, has one value.

    Args:
        length: T, number of tokens
        heads: m, number of heads
        clip: k, distance at which distances are clipped
        d: width of a head
        scaled: whether scores are divided by the root of the width
    """
    words, positions = normal(seed, 5, 1, heads, length, d).tensor_split([3])
    attend, free = Softmax(scaled=scaled), pair_bias(positions)
    biased = attend(*words, bias=free)
    error = largest(biased - attend(*concatenated(words, positions), words[2]))
    yield at_most("difference between a bias and concatenation, outputs", error, ROUNDING)
    sinusoids = Sinusoidal(length=length, d=d).vectors.expand_as(positions)
    by_distance = sinusoidal_bias(length, heads, d)
    weights = attend.weights(*words[:2], bias=by_distance)
    error = largest(weights - attend.weights(*concatenated(words, sinusoids)))
    name = "difference between a bias by distance and concatenated sinusoids, weights"
    yield at_most(name, error, ROUNDING)
    each, clipped = RelativeBias(heads=heads, length=length), RelativeBias(heads=heads, clip=clip)
    yield equal("parameters, (2(T − 1) + 1)m", count(each), (2 * (length - 1) + 1) * heads)
    yield equal("parameters, clipped, (2k + 1)m", count(clipped), (2 * clip + 1) * heads)
    shaw = count(ShawVectors(d=d, clip=clip))
    yield equal("parameters of Shaw's vectors, 2(2k + 1)d", shaw, 2 * (2 * clip + 1) * d)
    name = "difference from the formula as printed in the course, normalized: v_i"
    yield informational(name, largest(biased - words[2]))
    places = torch.arange(length)
    numbers = by_distance.dense(places, places)[0]
    yield heat_map(numbers, most=largest(numbers), x="key", y="query", unit=r"$\pi$")


def pair_bias(positions: Positions) -> TableBias:
    """Return a bias for each pair: the product of the position vectors."""
    return TableBias((positions[0] @ positions[1].mT)[0])


def concatenated(words: Words, positions: Positions) -> Float[Tensor, "2 1 heads n e"]:
    """Return queries and keys, each concatenated with its position vectors."""
    return torch.cat([words[:2], positions], -1)


def sinusoidal_bias(length: int, heads: int, d: int) -> RelativeBias:
    """Return a bias by distance that equals the product of sinusoids."""
    bias = RelativeBias(heads=heads, length=length).double().requires_grad_(False)
    bias.values.copy_(sinusoid_products(torch.arange(1 - length, length), d))
    return bias


def sinusoid_products(distances: Int[Tensor, "*distances"], d: int) -> Float[Tensor, "*distances"]:
    """Return products of the sinusoids of two positions by distance: Σ_k cos(ω_k(j − i))."""
    return (distances.double()[..., None] * frequencies(d, BASE)).cos().sum(-1)


def count(module: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


@study()
def shifting(
    d: Annotated[int, Meta(ge=4, le=512, multiple_of=2)] = 64,
    steps: Annotated[int, Meta(ge=1, le=1000)] = 3,
    length: Annotated[int, Meta(ge=2, le=4096)] = 512,
    encoding: Literal["sinusoidal", "random"] = "sinusoidal",
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which matrix shifts a sinusoidal position, and which wavelengths does it have?

    p(t + s) = Mˢ p(t) for every t: M rotates each pair of entries by ω_k. Wavelengths are 2π to
    2π·10000^(1 − 2/d) if k counts from 0, and 2π·10000^(2/d) to 2π·10000 if from 1.

    $$ \begin{pmatrix} \cos \omega_k & \sin \omega_k \\ -\sin \omega_k & \cos \omega_k \end{pmatrix}
    \begin{pmatrix} \sin \omega_k t \\ \cos \omega_k t \end{pmatrix} = \begin{pmatrix} \sin \omega_k
    (t+1) \\ \cos \omega_k (t+1) \end{pmatrix}, \quad \omega_k = 10000^{-2k/d} $$

    Wavelengths are measured on the angles of position vectors. Random vectors have no such matrix.

    Figure. Left: the matrix has 2 × 2 blocks along its diagonal and zeros elsewhere. Right:
    wavelengths by pair. Counted from 0 (dots), they begin at 2π and end below 10000·2π. Counted
    from 1 (crosses), they begin above 2π and end at 10000·2π. Dotted: 2π and 10000·2π.

    Args:
        d: width
        steps: s, number of positions of the shift
        length: number of positions t
        encoding: position vectors; random ones stand for learned ones
        seed: seed of random vectors
    """
    n, power = length + steps, shift_matrix(d, steps)
    sinusoids = Sinusoidal(length=n, d=d).vectors
    vectors = sinusoids if encoding == "sinusoidal" else normal(seed, n, d)
    rounding = 4 * torch.finfo(torch.float64).eps * n
    yield at_most("largest entry of p(t + s) − Mˢ p(t)", shift_error(vectors, steps), rounding)
    error = largest(torch.linalg.matrix_power(shift_matrix(d), steps) - power)
    yield at_most("largest entry of Mˢ − M···M (s factors)", error, rounding)
    found, ratio = {first: wavelengths(first, d) for first in (0, 1)}, BASE ** (2 / d)
    for first, shortest, longest in ((0, 1, 1 / ratio), (1, ratio, 1)):
        name, within = f"shortest wavelength / 2π, k from {first}", shortest * 1e-9
        yield equal(name, found[first][0] / TURN, shortest, within)
        name = f"longest wavelength / (10000·2π), k from {first}"
        yield equal(name, found[first][-1] / TURN / BASE, longest, within=1e-9)
    shown, pair = min(d, 32), np.unique(np.linspace(0, d // 2 - 1, 40).astype(int))
    axes = {"x": f"entries 0 to {shown - 1} of $p(t)$", "y": f"of $p(t + {steps})$"}
    title = f"$M$ to the power {steps}"
    by_pair = chart(
        series(pair + 1, found[0][pair], "$k$ from 0", "dots"),
        series(pair + 1, found[1][pair], "$k$ from 1", "crosses"),
        Line(y=TURN, label=r"$2\pi$"),
        Line(y=BASE * TURN, label=r"$10000 \cdot 2\pi$"),
        title="wavelengths",
        x="pair",
        y="wavelength",
        y_scale="log",
    )
    shifts = heat_map(power[:shown, :shown], title=title, unit="entry", **axes)
    yield figure(shifts, by_pair)


def shift_error(vectors: Float[Tensor, "n d"], steps: int) -> float:
    """Return the largest entry of p(t + s) − Mˢ p(t) for s = `steps`."""
    shifted = vectors[:-steps] @ shift_matrix(vectors.shape[1], steps).mT
    return largest(vectors[steps:] - shifted)


def wavelengths(first: int, d: int) -> Float[np.ndarray, " half"]:
    """Return the wavelengths of d/2 pairs from k = `first` on: a full turn / angle of a step.

    Angles are measured on `Sinusoidal`, which counts k from 0. To count from 1, a vector with one
    more pair and the same ratio of frequencies is used, without its first pair.
    """
    half = d // 2
    step = Sinusoidal(length=2, d=d + 2 * first, base=BASE ** (1 + 2 * first / d)).vectors[1]
    angles = torch.atan2(step[0::2], step[1::2])[first : first + half]
    return TURN / angles.numpy()
