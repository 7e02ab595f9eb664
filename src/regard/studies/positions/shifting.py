"""One matrix for each step."""

import math
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from msgspec import Meta
from torch import Tensor

from regard.positions import Sinusoidal, shift_matrix
from regard.studies.figure import Line, chart, figure, heat_map, series
from regard.studies.finding import EvidenceParts, at_most, equal, informational
from regard.studies.study import Seed, study
from regard.studies.tensors import largest, normal

Encoding = Literal["sinusoidal", "random"]
BASE = 10_000.0
TURN = 2 * math.pi


@study()
def shifting(
    d: Annotated[int, Meta(ge=4, le=512, multiple_of=2)] = 64,
    steps: Annotated[int, Meta(ge=1, le=1000)] = 3,
    length: Annotated[int, Meta(ge=2, le=4096)] = 512,
    encoding: Encoding = "sinusoidal",
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Which matrix shifts a sinusoidal position, and which are its wavelengths?

    p(t + s) = Mˢ p(t) for every t: M rotates each pair of entries by ω_k. Wavelengths are 2π to
    2π·10000^(1 − 2/d) if k counts from 0, and 2π·10000^(2/d) to 2π·10000 if from 1.

    $$ \begin{pmatrix} \cos \omega_k & \sin \omega_k \\ -\sin \omega_k & \cos \omega_k \end{pmatrix}
    \begin{pmatrix} \sin \omega_k t \\ \cos \omega_k t \end{pmatrix} = \begin{pmatrix} \sin \omega_k
    (t+1) \\ \cos \omega_k (t+1) \end{pmatrix}, \quad \omega_k = 10000^{-2k/d} $$

    A pair (sin ωt, cos ωt) is a hand on a clock, and s steps turn it by sω, wherever it stands.
    So a head can look s positions back by one fixed matrix between queries and keys, and the
    product of two positions is Σ cos(ω_k s), whatever t is. Random vectors, as learned positions
    are at first, know no such matrix.

    The clocks' hands differ in speed by the same ratio from pair to pair. A row of d/2 speeds that
    begins with 1 ends one step short of 1/10000, and one that ends there begins one step late: a
    factor of 10000^(2/d), which is 10 at d = 8, 1.33 at d = 64 and 1.04 at d = 512.

    Figure. Left: the matrix has blocks of 2 × 2 along its diagonal and zeros elsewhere. Right:
    wavelengths grow by a factor from pair to pair; counted from 0 (dots) they begin at 2π and end
    below 10000·2π, counted from 1 (crosses) they begin above 2π and end there. Dotted: both ends.

    Args:
        d: width
        steps: s, positions to move on
        length: positions t to try
        encoding: position vectors; random ones stand for learned ones
        seed: seed of random vectors
    """
    vectors = position_vectors(encoding, length + steps, d, seed)
    matrix, rounding = shift_matrix(d), 4 * torch.finfo(torch.float64).eps * (length + steps)
    products = (vectors[:length] * vectors[steps:]).sum(-1)
    from_0, from_1 = wavelengths(0, d), wavelengths(1, d)
    ratio = BASE ** (2 / d)
    yield at_most("largest entry of p(t + s) − Mˢ p(t)", moved_gap(vectors, steps), rounding)
    off = largest(torch.linalg.matrix_power(matrix, steps) - shift_matrix(d, steps))
    yield at_most("Mˢ less s times M, one after the other", off, rounding)
    yield at_most("M less its blocks by the formula", largest(matrix - blocks(d)), 1e-15)
    yield at_most("p(t)·p(t + s), from t to t", products.max() - products.min(), d * rounding)
    yield equal("shortest wavelength / 2π, k from 0", from_0[0] / TURN, 1, within=1e-9)
    yield equal("longest / (10000·2π), k from 0", from_0[-1] / TURN / BASE, 1 / ratio, within=1e-9)
    yield equal("shortest / 2π, k from 1", from_1[0] / TURN, ratio, within=ratio * 1e-9)
    yield equal("longest / (10000·2π), k from 1", from_1[-1] / TURN / BASE, 1, within=1e-9)
    yield informational("shortest / 2π and longest / (10000·2π) by the course, both", 1)
    shown, pair = min(d, 32), np.unique(np.linspace(0, d // 2 - 1, 40).astype(int))
    power, title = shift_matrix(d, steps)[:shown, :shown], f"M to the power {steps}"
    axes = {"x": f"entries 0 to {shown - 1} of p(t)", "y": f"of p(t + {steps})"}
    yield figure(
        heat_map(power, title=title, unit="entry", **axes),
        chart(
            series(pair + 1, from_0[pair], "k from 0", "dots"),
            series(pair + 1, from_1[pair], "k from 1", "crosses"),
            Line(y=TURN, label="2π"),
            Line(y=BASE * TURN, label="10000·2π"),
            title="wavelengths",
            x="pair",
            y="wavelength",
            y_scale="log",
        ),
    )


def position_vectors(encoding: Encoding, n: int, d: int, seed: int) -> Float[Tensor, "n d"]:
    """Of the positions 0 to n − 1."""
    if encoding == "sinusoidal":
        return Sinusoidal(length=n, d=d).vectors
    return normal(seed, n, d)


def moved_gap(vectors: Float[Tensor, "n d"], steps: int) -> float:
    """How far Mˢ leads from the position that is `steps` on."""
    moved = vectors[:-steps] @ shift_matrix(vectors.shape[1], steps).mT
    return largest(vectors[steps:] - moved)


def blocks(d: int) -> Float64[Tensor, "d d"]:
    """M, block by block."""
    angles = [BASE ** (-k / d) for k in range(0, d, 2)]
    turns = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in angles]
    matrix: Tensor = torch.block_diag(*torch.tensor(turns, dtype=torch.float64))
    return matrix


def wavelengths(first: int, d: int) -> Float[np.ndarray, " half"]:
    """Of d/2 pairs from k = first on: a whole turn over the angle of a step.

    The angles are read off the library's vectors where k counts from 0. The next pair of a
    wider row, whose frequencies fall by the same ratio, is the one that counting from 1 adds.
    """
    half = d // 2
    step = Sinusoidal(length=2, d=d + 2 * first, base=BASE ** (1 + 2 * first / d)).vectors[1]
    angles = torch.atan2(step[0::2], step[1::2])[first : first + half]
    return TURN / angles.numpy()
