"""Linformer, BigBird and Performer against softmax."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Attention, BigBird, KernelAttention, Linformer, Shape, Softmax
from regard.attention.feature_maps import FavorPositive
from regard.studies.costs import exponent, peak_bytes, seconds
from regard.studies.figure import figure, log_chart
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    equal,
    informational,
)
from regard.studies.low_rank.blocks import big_bird
from regard.studies.low_rank.slow_walks import slow_walks
from regard.studies.study import Seed, study

FEATURES = (64, 128, 256, 512)
LENGTHS = (512, 1024, 2048)
_BLOCK = _D = 16
_DRAWS = 4


class Sample(NamedTuple):
    """Tokens that change slowly, queries and keys at once; and what softmax makes of them."""

    states: Float[Tensor, "1 1 n d"]
    values: Float[Tensor, "1 1 n d"]
    exact: Float[Tensor, "1 1 n d"]

    @staticmethod
    def drawn(n: int, spread: float, reach: float, seed: tuple[int, int]) -> "Sample":
        """Queries and keys have entries of so large a deviation, values of 1."""
        both = slow_walks(1, n, 2 * _D, reach=reach, seed=seed)
        states, values = spread * both[..., :_D], both[..., _D:]
        return Sample(states, values, Softmax()(states, states, values))


class Measured(NamedTuple):
    """A mechanism at one length."""

    operations: int
    milliseconds: float
    bytes: int


@study()
def approximations(
    n: Annotated[int, Meta(ge=512, le=2048)] = 1024,
    features: Annotated[int, Meta(ge=64, le=512, multiple_of=_BLOCK)] = 128,
    spread: Annotated[float, Meta(gt=0, le=3)] = 0.35,
    reach: Annotated[float, Meta(ge=0, le=512)] = 32.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How close are Linformer, BigBird and Performer to softmax, and what do they save?

    Their operations and memory grow linearly with the length, those of softmax quadratically (its
    memory only if all weights are stored); each is closer to softmax the more features it has.

    $$ \mathrm{error} = \frac{\|\hat{C} - C\|_F}{\|C\|_F}, \quad C = \mathrm{softmax}\left(\frac{Q
    K^\top}{\sqrt{d}}\right) V $$

    Linformer mixes the keys down to k rows (here each row is the mean of a stretch, which Wang
    et al., 2020, section 4, name as one way), BigBird looks at a few blocks of keys, and Performer
    puts a product of m random features in place of e^(q·k/√d). "Features" are k, m, and the number
    of keys that BigBird looks at.

    Each bets on something. Linformer bets that keys change slowly along the text: with reach=0 its
    means blur what differs. BigBird bets that what matters is near, and the rest can be told from a
    sample: of soft weights over all keys it loses most. Performer bets on short queries and keys:
    at unit variance (spread=1) its random products are so uneven that 512 features are more
    than half off.

    What softmax costs depends on how it is done. Written product by product it holds n² weights at
    once; the fused kernel never does, and its memory is as linear as the others'. Its time is not.

    Figure. Left: the time of softmax grows with the square of the length, that of Linformer,
    BigBird and Performer in proportion. Middle: so does the memory, but fused softmax is as linear
    as the three. Right: errors fall as features are added. Dots: measured.

    Args:
        n: tokens where features vary
        features: features where the length varies
        spread: deviation of the entries of queries and keys
        reach: tokens over which the inputs change
    """
    samples = [Sample.drawn(n, spread, reach, (seed, which)) for which in range(_DRAWS)]
    errors = {
        name: [error(make, m, samples) for m in FEATURES] for name, make in MECHANISMS.items()
    }
    longer = [Sample.drawn(length, spread, reach, (seed, 0)) for length in LENGTHS]
    lengths = {
        name: [measured(make, features, sample) for sample in longer]
        for name, make in (MECHANISMS | EXACT).items()
    }
    yield from grown(lengths)
    yield from nearer(errors)
    milliseconds = {name: [one.milliseconds for one in row] for name, row in lengths.items()}
    memory = {name: [one.bytes for one in row] for name, row in lengths.items()}
    yield figure(
        log_chart(LENGTHS, milliseconds, title="milliseconds", x="tokens"),
        log_chart(LENGTHS, memory, title="bytes", x="tokens"),
        log_chart(FEATURES, errors, title="relative error", x="features"),
    )


class Composed(Softmax):
    """Softmax attention product by product, with all its weights at once."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **rest: object) -> Tensor:
        return self.weights(query, key) @ value


def pooled(n: int, k: int, _seed: int) -> Linformer:
    """A Linformer whose k rows are the means of as many stretches of n tokens."""
    attention = Linformer(length=n, k=k)
    row, token = torch.arange(n) * k // n, torch.arange(n)
    with torch.no_grad():
        for projection in (attention.project_key, attention.project_value):
            projection.zero_()
            projection[0, row, token] = 1 / row.bincount()[row].float()
    return attention


def blocks(n: int, keys: int, seed: int) -> BigBird:
    """A BigBird that looks at so many keys: one global block, a window of three, random ones."""
    random = max(keys // _BLOCK - 4, 0)  # the window and the global block are four
    return big_bird(n, block=_BLOCK, random=random, seed=seed)


def performer(_n: int, m: int, seed: int) -> KernelAttention:
    """Performer with m positive random features."""
    return KernelAttention(FavorPositive(d=_D, features=m, seed=seed))


Maker = Callable[[int, int, int], Attention]
"""A mechanism for so many tokens, with so many features, from a seed."""
EXACT: dict[str, Maker] = {
    "softmax, written out": lambda *_: Composed(),
    "softmax, fused": lambda *_: Softmax(),
}
MECHANISMS: dict[str, Maker] = {"Linformer": pooled, "BigBird": blocks, "Performer": performer}


@torch.inference_mode()
def error(make: Maker, features: int, samples: Sequence[Sample]) -> float:
    """‖out − exact‖/‖exact‖ over all rows of the samples, each with random features of its own."""
    off = size = 0.0
    for seed, x in enumerate(samples):
        attention = make(x.states.shape[2], features, seed).double()
        off += float((attention(x.states, x.states, x.values) - x.exact).square().sum())
        size += float(x.exact.square().sum())
    return math.sqrt(off / size)


def measured(make: Maker, features: int, sample: Sample) -> Measured:
    """Cost, time and memory in float32."""
    n = sample.states.shape[2]
    attention, states, values = make(n, features, 0), sample.states.float(), sample.values.float()
    shape = Shape(batch=1, heads=1, kv_heads=1, queries=n, keys=n, d=_D, e=_D)

    def call() -> object:
        return attention(states, states, values)

    return Measured(
        operations=attention.cost(shape).operations,
        milliseconds=1e3 * seconds(call),
        bytes=peak_bytes(call),
    )


def grown(lengths: Mapping[str, Sequence[Measured]]) -> Iterator[Measurement]:
    """How operations, memory and time grow with the length, as exponents."""
    for name, row in lengths.items():
        operations = exponent(LENGTHS, [x.operations for x in row])
        memory = exponent(LENGTHS, [x.bytes for x in row])
        yield equal(f"operations, {name}", operations, 2 if name in EXACT else 1, within=0.1)
        if name == "softmax, written out":
            yield at_least(f"memory, {name}", memory, 1.8)
        else:
            yield at_most(f"memory, {name}", memory, 1.2)
        yield informational(f"time, {name}", exponent(LENGTHS, [x.milliseconds for x in row]))


def nearer(errors: Mapping[str, Sequence[float]]) -> Iterator[Measurement]:
    """How much of the error the most features leave of that of the fewest."""
    first, last = FEATURES[0], FEATURES[-1]
    for name, row in errors.items():
        yield informational(f"error of {name} with {last} features", row[-1])
        ratio = row[-1] / row[0]
        yield at_most(f"error of {name}, with {last} features / with {first}", ratio, 0.7)
