"""Time of one decoded token against the context before it. Run by `make bench`.

8 heads of width 64, one row, float32. Exact attention reads its cache of keys and values, so no
token can take less than the cache's bytes over the machine's memory bandwidth: the floor. The
bandwidth is the better of a sum over a buffer as large as the cache and a copy of one, timed in
the same rounds. Kernel attention reads a state whose size doesn't change.

    python benchmarks/decoding_step.py [--lengths 1024 4096 …] [--rounds 15] [--device cpu]
                                       [--out DIR]

Prints a table, and writes decoding_step.json and decoding_step.png into docs/figures.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import measure
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch import Tensor

from regard.attention import Attention, KernelAttention, Shape, Softmax, State
from regard.attention.feature_maps import Elu, FavorPositive
from regard.attention.state import KeyValueCache

HEADS, D, FEATURES = 8, 64, 256
TOKENS = 16
"""Tokens decoded one by one for each measurement."""
LENGTHS = (1024, 4096, 16384, 65536)
FLAT, ABOVE_FLOOR = 1.1, 1.5
"""What is claimed: the slowest context over the fastest; time over its floor."""
FLOOR_AT = 16384
"""The context that the claim about the floor is for."""
SOFTMAX = "softmax"


@dataclass(frozen=True, kw_only=True)
class Step:
    """The time of a token after so many others."""

    name: str
    context: int
    times: list[float]
    """Seconds a token."""
    bytes: int
    operations: int
    state_bytes: int
    floor: float | None = None
    """Seconds that reading the state takes at least, of exact attention."""

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    @property
    def above_floor(self) -> float | None:
        return None if self.floor is None else self.seconds / self.floor


def mechanisms() -> dict[str, Attention]:
    """By the names that they have in the table."""
    return {
        "elu+1": KernelAttention(Elu()),
        "FAVOR+": KernelAttention(FavorPositive(d=D, features=FEATURES)),
        SOFTMAX: Softmax(),
    }


def random(tokens: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values."""
    query, key, value = torch.randn(3, 1, HEADS, tokens, D, device=device)
    return query, key, value


def state_after(attend: Attention, context: int, device: torch.device) -> Callable[[], State]:
    """The state after so many random tokens, as often as wished."""
    _, key, value = random(context + TOKENS + 1, device)  # a cache has one slot for padding
    if isinstance(attend, Softmax):
        behind = torch.zeros(len(key), dtype=torch.long, device=device)
        return lambda: KeyValueCache(key, value, behind, shortest=context, longest=context)
    state = attend.encode_memory(key[:, :, :context], value[:, :, :context])
    return lambda: state


@torch.no_grad()
def decode(attend: Attention, state: State, tokens: Sequence[tuple[Tensor, ...]]) -> None:
    """Token by token."""
    for query, key, value in tokens:
        _, state = attend.extend(query, key, value, state)


def decoding(attend: Attention, context: int, device: torch.device) -> measure.Call:
    """To decode `TOKENS` tokens after a context."""
    start = state_after(attend, context, device)
    split = [x.split(1, 2) for x in random(TOKENS, device)]
    tokens = list(zip(*split, strict=True))
    return lambda: decode(attend, start(), tokens)


def measured(
    lengths: Sequence[int], rounds: int, device: torch.device
) -> tuple[list[Step], dict[int, float]]:
    """The steps of all mechanisms, and the bandwidth by context: bytes a second."""
    calls, moved = {}, {}
    attends = {name: attend.to(device) for name, attend in mechanisms().items()}
    for context in lengths:
        for name, attend in attends.items():
            calls[f"{name} {context}"] = decoding(attend, context, device)
        size = 2 * HEADS * context * D * 4
        for kind, make in (("read", measure.reading), ("copy", measure.copying)):
            calls[f"{kind} {context}"], moved[f"{kind} {context}"] = make(size, device)
    times = measure.interleaved(calls, rounds, device)
    bandwidth = {
        context: max(
            moved[name] / statistics.median(times[name])
            for name in (f"read {context}", f"copy {context}")
        )
        for context in lengths
    }
    return [
        step(name, attend, context, times[f"{name} {context}"], bandwidth[context])
        for name, attend in attends.items()
        for context in lengths
    ], bandwidth


def step(
    name: str, attend: Attention, context: int, times: Sequence[float], bandwidth: float
) -> Step:
    """Times of a token, with its cost and floor."""
    cost = attend.cost(
        Shape(batch=1, heads=HEADS, kv_heads=HEADS, queries=1, keys=context, d=D, e=D, mode="step")
    )
    return Step(
        name=name,
        context=context,
        times=[taken / TOKENS for taken in times],
        bytes=cost.bytes,
        operations=cost.operations,
        state_bytes=cost.state_bytes,
        floor=cost.state_bytes / bandwidth if name == SOFTMAX else None,
    )


def flatness(steps: Sequence[Step], name: str) -> float:
    """The slowest context's time over the fastest's."""
    medians = [step.seconds for step in steps if step.name == name]
    return max(medians) / min(medians)


def claims(steps: Sequence[Step]) -> dict[str, tuple[float, float]]:
    """What is claimed: the figure, and what it may be."""
    found = {
        f"{name}: slowest context / fastest": (flatness(steps, name), FLAT)
        for name in mechanisms()
        if name != SOFTMAX
    }
    for s in steps:
        if s.context == FLOOR_AT and s.above_floor is not None:
            found[f"{s.name} at {FLOOR_AT}: time / floor"] = s.above_floor, ABOVE_FLOOR
    return found


def step_table(steps: Sequence[Step], bandwidth: dict[int, float]) -> Table:
    """A row a mechanism and context."""
    columns = "context", "µs a token", "state MiB", "GB/s machine", "floor µs", "time / floor"
    title = "one decoded token, 8 heads of width 64, float32"
    made = measure.table(title, "mechanism", *columns)
    for s in steps:
        made.add_row(
            s.name,
            str(s.context),
            f"{s.seconds * 1e6:.0f}",
            f"{s.state_bytes / 2**20:.2f}",
            f"{bandwidth[s.context] / 1e9:.1f}",
            "" if s.floor is None else f"{s.floor * 1e6:.0f}",
            "" if s.above_floor is None else f"{s.above_floor:.2f}",
        )
    return made


def figure(steps: Sequence[Step]) -> Figure:
    """Time a token over the context, and the floor."""
    drawn = Figure(figsize=(7, 5), layout="constrained")
    panel = drawn.subplots()
    for name in mechanisms():
        mine = [s for s in steps if s.name == name]
        panel.loglog([s.context for s in mine], [s.seconds * 1e6 for s in mine], "o-", label=name)
    floors = [(s.context, s.floor * 1e6) for s in steps if s.floor is not None]
    panel.loglog(*zip(*floors, strict=True), "k:", label="reading softmax's cache")
    contexts = sorted({s.context for s in steps})
    panel.set_xticks(contexts, [str(context) for context in contexts])
    panel.minorticks_off()
    panel.set_xlabel("tokens before")
    panel.set_ylabel("µs a token")
    panel.grid(alpha=0.3)
    panel.legend()
    return drawn


def document(
    arguments: argparse.Namespace, steps: Sequence[Step], bandwidth: dict[int, float]
) -> dict[str, Any]:
    """All numbers, for decoding_step.json."""
    return {
        "machine": measure.describe(torch.device(arguments.device)),
        "setting": {"rounds": arguments.rounds, "tokens": TOKENS},
        "bandwidth": bandwidth,
        "steps": [asdict(s) | {"seconds": s.seconds, "above_floor": s.above_floor} for s in steps],
        "claims": {
            claim: {"figure": figure, "at_most": at_most, "holds": figure <= at_most}
            for claim, (figure, at_most) in claims(steps).items()
        },
    }


def main() -> None:
    """Measure, print, write."""
    arguments = measure.parse(measure.options(__doc__, lengths=LENGTHS, rounds=15))
    steps, bandwidth = measured(arguments.lengths, arguments.rounds, torch.device(arguments.device))
    console = Console(width=140)
    console.print(step_table(steps, bandwidth))
    for claim, (found, at_most) in claims(steps).items():
        verdict = "holds" if found <= at_most else "DOES NOT HOLD"
        console.print(f"{claim}: {found:.2f}, claimed ≤ {at_most}: {verdict}")
    written = document(arguments, steps, bandwidth)
    measure.save(arguments.out, "decoding_step", written, figure(steps))


if __name__ == "__main__":
    main()
