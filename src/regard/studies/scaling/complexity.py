"""Cost of a layer of attention."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
import torch
from msgspec import Meta
from torch import Tensor

from regard.attention import KernelAttention, Mask, Softmax
from regard.attention.feature_maps import Fourier
from regard.studies.costs import Call, exponent, multiplications, seconds
from regard.studies.figure import Chart, Line, bar_chart, chart, figure, log_chart, series
from regard.studies.finding import Measurement, Measurements, at_least, equal
from regard.studies.study import EvidenceParts, study

DOUBLED = {
    "encoder, 2M": (2, 2),
    "cross-attention, 2M": (1, 2),
    "cross-attention, 2N": (2, 1),
    "decoder, 2N": (2, 2),
}
"""Factors of queries and keys if the length of inputs, M, or of outputs, N, is doubled."""


class Part(NamedTuple):
    """A computation, and the predicted number of multiplications in its matrix products."""

    name: str
    predicted: float
    call: Call
    spare: float = 0.0
    """Share of additional multiplications that is allowed."""


@study()
def complexity(
    h: Annotated[int, Meta(ge=16, le=128, multiple_of=4)] = 64,
    inputs: Annotated[int, Meta(ge=128, le=2048)] = 256,
    outputs: Annotated[int, Meta(ge=128, le=2048)] = 192,
    d: Annotated[int, Meta(ge=2, le=32)] = 8,
    e: Annotated[int, Meta(ge=2, le=64)] = 12,
    features: Annotated[int, Meta(ge=1, le=512)] = 32,
    start: Annotated[float, Meta(ge=0.125, le=8)] = 8.0,
) -> EvidenceParts:
    r"""What does a layer of self-attention cost, and from which length on is it quadratic?

    Queries, keys and values take 3nh² multiplications, and the attention 2n²h: equal at n = 1.5h.
    The sum is nearly quadratic in n only for texts much longer than that. Encoder, cross- and
    decoder attention take O(M²h), O(MNh) and O(N²h); random features O(N(E + D)R), softmax
    O(N² max(D, E)).

    $$ 3 n h^2 + 2 n^2 h, \quad \frac{d \ln \mathrm{cost}}{d \ln n} = \frac{3h + 4n}{3h + 2n} $$

    The counts are the multiplications of the matrix products that are executed; times are the best
    of several. R random directions give 2R features; the normalizer is one more value.

    Figure. Left: multiplications against the length n. Projections and attention cross at n = 1.5h
    (dotted), and their sum (dashes) changes from one to the other. Middle: measured times (dots).
    Right: time of each attention with a doubled length, relative to M = N = {base}. Dotted: 2 and
    4.

    Args:
        h: width of the layer, one head
        inputs: M, inputs of the encoder
        outputs: N, outputs of the decoder
        d: D, width of the kernel's keys
        e: E, width of their values
        features: R, random directions
        start: smallest length of the fit of exponents, as a multiple of h
    """
    lengths = [max(round(start * h * times), 2) for times in (1, 2, 4, 8)]
    parts = (*layer(inputs, h), *families(inputs, outputs, h), *kernels(outputs, d, e, features))
    taken = [measured_time(n, h) for n in lengths]
    yield from map(counted, parts)
    yield from _balance(h)
    span = f"from n = {lengths[0]} to {lengths[-1]}"
    counts, slope = [sum(predicted_counts(n, h)) for n in lengths], exponent(lengths, taken)
    yield at_least(f"exponent of the count {span}", exponent(lengths, counts), 1.75)
    yield Measurement(name=f"exponent of the time {span}", measured=slope, low=1.2, high=3.2)
    doubled = times_if_doubled(lengths[2], h)
    for (name, factors), ratio in zip(DOUBLED.items(), doubled, strict=True):
        bounds = {"low": math.prod(factors) / 2**0.75, "high": math.prod(factors) * 2**0.75}
        name = f"time at doubled length / time: {name}"
        yield Measurement(name=name, measured=ratio, **bounds)
    times = {f"softmax, exponent {slope:.2f}": [1e3 * one for one in taken]}
    milliseconds = log_chart(lengths, times, title="milliseconds", x="$n$")
    yield figure(_predicted_counts(h), milliseconds, _ratios(doubled), base=lengths[2])


def _balance(h: int) -> Measurements:
    """Yield the quotient of attention and projections at n = 1.5h, and the exponent around it."""
    around = [3 * h // 4, 3 * h // 2, 3 * h]
    below, equally, above = ([multiplications(part.call) for part in layer(n, h)] for n in around)
    yield equal(f"attention / projections at n = {around[1]}", equally[1] / equally[0], 1)
    halfway = exponent([around[0], around[2]], [sum(below), sum(above)])
    name = f"exponent of the count from n = {around[0]} to {around[2]}"
    yield equal(name, halfway, 1.5, within=1e-12)


def _predicted_counts(h: int) -> Chart:
    grid = np.geomspace(h / 8, 64 * h, 40)
    projections, attention = np.array([predicted_counts(n, h) for n in grid]).T
    return chart(
        series(grid, projections, "projections, $3nh^2$"),
        series(grid, attention, "attention, $2n^2h$"),
        series(grid, projections + attention, "sum", "dashes"),
        Line(x=1.5 * h, label="$n = 1.5h$"),
        title="multiplications",
        x="$n$",
        x_scale="log",
        y_scale="log",
    )


def _ratios(doubled: Sequence[float]) -> Chart:
    names = [name.replace("-attention", "").replace(", ", "\n") for name in DOUBLED]
    bars, title = {"": dict(zip(names, doubled, strict=True))}, "time if a length is doubled"
    return bar_chart(bars, Line(y=2), Line(y=4), title=title, y_limits=(0, 5))


def predicted_counts(n: float, h: int) -> tuple[float, float]:
    """Return the multiplications of the projections and of the attention of a layer."""
    return 3 * n * h**2, 2 * n**2 * h


def layer(n: int, h: int) -> tuple[Part, Part]:
    """Return the projections and the attention of a layer with one head."""
    projections, attention = predicted_counts(n, h)
    x, *matrices = _drawn_numbers((n, h), (h, h), (h, h), (h, h))
    return (
        Part(f"projections, {n} tokens: 3nh²", projections, lambda: [x @ w for w in matrices]),
        Part(f"attention, {n} tokens: 2n²h", attention, _softmax(n, n, h, h)),
    )


def families(m: int, n: int, h: int) -> tuple[Part, ...]:
    """Return the attentions of an encoder–decoder. Masking the decoder saves no product."""
    return (
        Part("encoder: 2M²h", 2 * m**2 * h, _softmax(m, m, h, h)),
        Part("cross-attention: 2MNh", 2 * m * n * h, _softmax(n, m, h, h)),
        Part("decoder: 2N²h", 2 * n**2 * h, _softmax(n, n, h, h, Mask.causal())),
    )


def kernels(n: int, d: int, e: int, features: int) -> tuple[Part, Part]:
    """Return softmax and kernel attention with keys and values of different widths.

    Kernel attention sums in chunks; 2 % are allowed for joining them.
    """
    waves = KernelAttention(Fourier(d=d, features=features), chunk=1)
    sums = partial(waves.sums, *_drawn_heads(n, n, d, e))
    by_waves = 2 * n * features * (d + 2 * e + 2)
    return (
        Part("softmax: N²(D + E)", n**2 * (d + e), _softmax(n, n, d, e)),
        Part("random features: 2NR(D + 2E + 2)", by_waves, sums, 0.02),
    )


def counted(part: Part) -> Measurement:
    """Return the number of executed multiplications, with the prediction."""
    spare = part.predicted * part.spare
    return equal(part.name, multiplications(part.call), part.predicted, within=spare)


def measured_time(n: int, h: int) -> float:
    """Return the seconds of a layer of n tokens."""
    x, *matrices = _drawn_numbers((n, h), (h, h), (h, h), (h, h))
    return seconds(lambda: Softmax()(*((x @ w)[None, None] for w in matrices)))


def times_if_doubled(n: int, h: int) -> list[float]:
    """Return the time of each attention of `DOUBLED`, relative to that of lengths M = N = n.

    The best of six. The calls take turns, so that other work on the machine slows all of them.
    """
    calls = []
    for name, (queries, keys) in DOUBLED.items():
        mask = Mask.causal() if name.startswith("decoder") else None
        calls += [
            partial(Softmax(), *_drawn_heads(*sizes, h, h), mask=mask)
            for sizes in ((n, n), (queries * n, keys * n))
        ]
    rounds = [[seconds(one, times=1) for one in calls] for _ in range(6)]
    least = [min(one) for one in zip(*rounds, strict=True)]
    return [doubled / one for one, doubled in zip(least[::2], least[1::2], strict=True)]


def _softmax(queries: int, keys: int, d: int, e: int, mask: Mask | None = None) -> Call:
    """Return softmax attention product by product, so that the products can be counted."""
    query, key, value = _drawn_heads(queries, keys, d, e)
    return lambda: Softmax().weights(query, key, mask=mask) @ value


def _drawn_heads(queries: int, keys: int, d: int, e: int) -> list[Tensor]:
    """Return queries, keys and values of one head."""
    return [x[None, None] for x in _drawn_numbers((queries, d), (keys, d), (keys, e))]


def _drawn_numbers(*shapes: tuple[int, int]) -> list[Tensor]:
    """Return random matrices, small enough for any kernel."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) / math.sqrt(shape[1]) for shape in shapes]
