"""The matrix that shifts sinusoidal positions."""

import math
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.positions import Sinusoidal, shift_matrix
from regard.studies.figure import Line, chart, figure, heat_map, series
from regard.studies.finding import at_most, equal
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest, normal

Encoding = Literal["sinusoidal", "random"]
BASE = 10_000.0
TURN = 2 * math.pi
"""A full turn."""


@study()
def shifting(
    d: Annotated[int, Meta(ge=4, le=512, multiple_of=2)] = 64,
    steps: Annotated[int, Meta(ge=1, le=1000)] = 3,
    length: Annotated[int, Meta(ge=2, le=4096)] = 512,
    encoding: Encoding = "sinusoidal",
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
    vectors = position_vectors(encoding, length + steps, d, seed)
    matrix, rounding = shift_matrix(d), 4 * torch.finfo(torch.float64).eps * (length + steps)
    products = (vectors[:length] * vectors[steps:]).sum(-1)
    yield at_most("largest entry of p(t + s) − Mˢ p(t)", shift_error(vectors, steps), rounding)
    error = largest(torch.linalg.matrix_power(matrix, steps) - shift_matrix(d, steps))
    yield at_most("largest entry of Mˢ − M···M (s factors)", error, rounding)
    yield at_most("range of p(t)·p(t + s) over t", products.max() - products.min(), d * rounding)
    found, ratio = {first: wavelengths(first, d) for first in (0, 1)}, BASE ** (2 / d)
    for first, shortest, longest in ((0, 1, 1 / ratio), (1, ratio, 1)):
        name, within = f"shortest wavelength / 2π, k from {first}", shortest * 1e-9
        yield equal(name, found[first][0] / TURN, shortest, within)
        name = f"longest wavelength / (10000·2π), k from {first}"
        yield equal(name, found[first][-1] / TURN / BASE, longest, within=1e-9)
    shown, pair = min(d, 32), np.unique(np.linspace(0, d // 2 - 1, 40).astype(int))
    axes = {"x": f"entries 0 to {shown - 1} of $p(t)$", "y": f"of $p(t + {steps})$"}
    power, title = shift_matrix(d, steps)[:shown, :shown], f"$M$ to the power {steps}"
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
    yield figure(heat_map(power, title=title, unit="entry", **axes), by_pair)


def position_vectors(encoding: Encoding, n: int, d: int, seed: int) -> Float[Tensor, "n d"]:
    """Return vectors of the positions 0 to n − 1."""
    if encoding == "sinusoidal":
        return Sinusoidal(length=n, d=d).vectors
    return normal(seed, n, d)


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
