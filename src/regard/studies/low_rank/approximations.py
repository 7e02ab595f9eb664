"""Linformer, BigBird and Performer compared with softmax."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.attention import Attention, BigBird, KernelAttention, Linformer, Shape, Softmax
from regard.attention.feature_maps import FavorPositive
from regard.studies.costs import exponent, peak_bytes, seconds
from regard.studies.figure import figure, log_chart
from regard.studies.finding import Measurement, Measurements, at_least, at_most, equal
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import relative_error, slow_walks

FEATURES = (64, 128, 256, 512)
LENGTHS = (512, 1024, 2048)
_BLOCK = _D = 16
_DRAWS = 4


Sample: TypeAlias = Float[Tensor, "3 1 1 n d"]
"""Slowly changing states, used as queries and keys; values; and outputs of softmax attention."""


class Costs(NamedTuple):
    """Costs of a mechanism, by number of tokens in `LENGTHS`."""

    operations: list[int]
    milliseconds: list[float]
    bytes: list[int]


@study()
def approximations(
    n: Annotated[int, Meta(ge=512, le=2048)] = 1024,
    features: Annotated[int, Meta(ge=64, le=512, multiple_of=_BLOCK)] = 128,
    spread: Annotated[float, Meta(gt=0, le=3)] = 0.35,
    reach: Annotated[float, Meta(ge=0, le=512)] = 32.0,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How accurate are Linformer, BigBird and Performer, and which costs do they reduce?

    Their operations grow linearly with the length, and their memory at most linearly. Those of
    softmax grow quadratically (its memory only if all weights are stored). Each is more accurate
    with more features.

    $$ \mathrm{error} = \frac{\|\hat{C} - C\|_F}{\|C\|_F}, \quad C = \mathrm{softmax}\left(\frac{Q
    K^\top}{\sqrt{d}}\right) V $$

    Each of Linformer's k rows is the mean of a segment (an option in section 4 of Wang et al.,
    2020). "Features" are k, the number of keys to which BigBird attends, and Performer's m random
    features. Linformer assumes that keys change slowly along the text (not with reach=0), Performer
    that queries and keys are short (not with spread=1).

    Figure. Left: time. It grows about quadratically with the length for softmax, or faster, and at
    most linearly for the others. Middle: memory. It grows quadratically for softmax written out,
    and at most linearly for the others. Right: errors fall with the number of features.

    Args:
        n: number of tokens in the comparison of features
        features: number of features in the comparison of lengths
        spread: standard deviation of the entries of queries and keys
        reach: number of tokens over which the inputs change
    """
    samples = [draw_sample(n, spread, reach, (seed, which)) for which in range(_DRAWS)]
    errors = {
        name: [error(make, m, samples) for m in FEATURES] for name, make in MECHANISMS.items()
    }
    longer = [draw_sample(length, spread, reach, (seed, 0)) for length in LENGTHS]
    costs = {name: measured(make, features, longer) for name, make in (MECHANISMS | EXACT).items()}
    for name, each in costs.items():
        yield from exponents(name, each)
    for name, row in errors.items():
        yield error_ratio(name, row)
    milliseconds = {name: each.milliseconds for name, each in costs.items()}
    memory = {name: each.bytes for name, each in costs.items()}
    yield figure(
        log_chart(LENGTHS, milliseconds, title="milliseconds", x="tokens"),
        log_chart(LENGTHS, memory, title="bytes", x="tokens"),
        log_chart(FEATURES, errors, title="relative error", x="features"),
    )


def draw_sample(n: int, spread: float, reach: float, seed: tuple[int, int]) -> Sample:
    """Draw a sample; `spread` is the standard deviation of the states, that of values is 1."""
    states, values = slow_walks(1, n, 2 * _D, reach=reach, seed=seed).split(_D, -1)
    states = spread * states
    return torch.stack([states, values, Softmax()(states, states, values)])


class Composed(Softmax):
    """Softmax attention that stores all weights."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **rest: object) -> Tensor:
        return self.weights(query, key) @ value


def pooled(n: int, k: int, _seed: int) -> Linformer:
    """Return a Linformer whose k rows are the means of k segments of n tokens."""
    attention = Linformer(length=n, k=k)
    row, token = torch.arange(n) * k // n, torch.arange(n)
    with torch.no_grad():
        for projection in (attention.project_key, attention.project_value):
            projection.zero_()
            projection[0, row, token] = 1 / row.bincount()[row].float()
    return attention


def blocks(n: int, keys: int, seed: int) -> BigBird:
    """Return a BigBird with a global block, a window of 3 and random blocks, in all `keys` keys."""
    random = max(keys // _BLOCK - 4, 0)  # besides the window and the global block
    blocks = {"window": 3, "random": random, "global_blocks": 1}
    return BigBird(block_size=_BLOCK, max_keys=n, seed=seed, **blocks)


def performer(_n: int, m: int, seed: int) -> KernelAttention:
    """Return a Performer with m positive random features."""
    return KernelAttention(FavorPositive(d=_D, features=m, seed=seed))


Maker = Callable[[int, int, int], Attention]
"""Function that makes a mechanism from a number of tokens, a number of features and a seed."""
EXACT: dict[str, Maker] = {
    "softmax, written out": lambda *_: Composed(),
    "softmax, fused": lambda *_: Softmax(),
}
MECHANISMS: dict[str, Maker] = {"Linformer": pooled, "BigBird": blocks, "Performer": performer}


@torch.inference_mode()
def error(make: Maker, features: int, samples: Sequence[Sample]) -> float:
    """Return ‖out − exact‖/‖exact‖ over all samples, each with its own random features."""
    outputs = []
    for seed, (states, values, _) in enumerate(samples):
        attention = make(states.shape[-2], features, seed).double()
        outputs.append(attention(states, states, values))
    return relative_error(torch.stack(outputs), torch.stack([exact for *_, exact in samples]))


def measured(make: Maker, features: int, samples: Sequence[Sample]) -> Costs:
    """Return operations, time and memory in float32."""
    costs = Costs([], [], [])
    for n, sample in zip(LENGTHS, samples, strict=True):
        states, values, _ = sample.float()
        attention = make(n, features, 0)
        shape = Shape(batch=1, heads=1, kv_heads=1, queries=n, keys=n, d=_D, e=_D)
        call = partial(attention, states, states, values)
        costs.operations.append(attention.cost(shape).operations)
        costs.milliseconds.append(1e3 * seconds(call))
        costs.bytes.append(peak_bytes(call))
    return costs


def exponents(mechanism: str, costs: Costs) -> Measurements:
    """Yield the exponents of operations and memory as powers of the length."""
    name, power = f"exponent of the length, {mechanism}", 2 if mechanism in EXACT else 1
    operations, memory = exponent(LENGTHS, costs.operations), exponent(LENGTHS, costs.bytes)
    yield equal(f"{name}: operations", operations, power, within=0.1)
    if mechanism == "softmax, written out":
        yield at_least(f"{name}: memory", memory, 1.8)
    else:
        yield at_most(f"{name}: memory", memory, 1.2)


def error_ratio(name: str, errors: Sequence[float]) -> Measurement:
    """Return the ratio of the error with the most features to that with the fewest."""
    ratio = errors[-1] / errors[0]
    return at_most(f"error of {name}, {FEATURES[-1]} / {FEATURES[0]} features", ratio, 0.7)
