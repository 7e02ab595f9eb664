"""How the benchmarks measure: interleaved times, peak memory, growth, and what the machine can do.

Several calls are timed in rounds: each round runs every call once, and the next round begins with
another one. A ratio is the median over rounds of the ratio within a round, so that whatever slows
the machine for a while slows both sides.
"""

import argparse
import gc
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from regard.environment import ExecutionEnvironment

Call = Callable[[], object]
FIGURES = Path(__file__).parent.parent / "docs" / "figures"

PAD, MASK = 0, 1
"""The ids of □ and ⁇ in a tokenizer trained here."""

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler's own chatter


def seconds(call: Call, device: torch.device, repeats: int = 1) -> float:
    """Time of one call, by events on a GPU; the mean of several if wished."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000 / repeats
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats


def repeats_for(call: Call, device: torch.device, least: float = 0.03) -> int:
    """How often to run a call for one measurement, so that it takes `least` seconds; warms it."""
    call()
    return min(max(round(least / max(seconds(call, device), 1e-6)), 1), 100)


def interleaved(
    calls: Mapping[str, Call], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Times of each call, one a round; the order rotates from round to round."""
    repeats = {name: repeats_for(call, device) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for i in range(rounds):
        turn = i % max(len(names), 1)
        for name in names[turn:] + names[:turn]:
            times[name].append(seconds(calls[name], device, repeats[name]))
    return times


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios of each round, and their quartiles."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(ours: Sequence[float], theirs: Sequence[float]) -> "Ratio":
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        if len(ratios) == 1:
            ratios *= 2
        return Ratio(*statistics.quantiles(ratios, n=4, method="inclusive"))


def peak_bytes(call: Call, device: torch.device) -> int:
    """Bytes that a call holds at most, beyond those held before it; its result counts.

    On a CPU: all blocks that torch's allocator hands out, inside kernels as well, as its profiler
    lists them; not the small scratch of the matrix library. On a GPU: the allocator's own count.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    recorder: Any = recorded.profiler
    events = [event for event in recorder.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    changes: list[int] = [event.nbytes() for event in events]
    return max(accumulate(changes, initial=0))


def exponent(lengths: Sequence[int], amounts: Sequence[float]) -> float:
    """b of the fit amounts ≈ a·lengths^b, by least squares of the logarithms; NaN of one length."""
    if len(lengths) < 2:
        return float("nan")
    logs = [math.log(n) for n in lengths], [math.log(amount) for amount in amounts]
    return statistics.linear_regression(*logs).slope


def square_product(n: int, device: torch.device, dtype: torch.dtype) -> tuple[Call, int]:
    """A product of two n × n matrices, and its operations."""
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    return lambda: a @ b, 2 * n**3


def copying(size: int, device: torch.device) -> tuple[Call, int]:
    """A copy of so many bytes, and the bytes that it reads and writes."""
    source = torch.ones(max(size // 4, 1), device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 2 * source.nbytes


def reading(size: int, device: torch.device) -> tuple[Call, int]:
    """A sum over so many bytes, and their number."""
    source = torch.ones(max(size // 4, 1), device=device)
    return source.sum, source.nbytes


def rate(call: Call, amount: int, device: torch.device, rounds: int = 9) -> float:
    """How much of an amount is done in a second, at best of some rounds."""
    repeats = repeats_for(call, device)
    return amount / min(seconds(call, device, repeats) for _ in range(rounds))


def options(
    doc: str | None, *, lengths: Sequence[int] = (), rounds: int
) -> argparse.ArgumentParser:
    """The options that all benchmarks take; lengths only those that measure at several."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if lengths:
        parser.add_argument("--lengths", type=int, nargs="+", default=list(lengths), metavar="N")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--out", type=Path, default=FIGURES, metavar="DIR")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What was given; sets the number of threads, and warns of company."""
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    warn_of_company()
    return given


def describe(device: torch.device) -> dict[str, str | int]:
    """The machine that measures, and the versions."""
    return ExecutionEnvironment.choose(str(device)).describe()


def warn_of_company() -> None:
    """Threads that wait for one another get slow by far where a stranger has one of the cores."""
    if not (counts := Path("/proc/loadavg")).exists():
        return
    others = []
    for _ in range(10):
        time.sleep(0.05)
        running = counts.read_text(encoding="ascii").split()[3].partition("/")[0]
        others.append(int(running) - 1)  # without this process
    if statistics.median(others) > 0:
        print("others are at work on this machine: don't trust these times", file=sys.stderr)


def table(title: str, *columns: str, words: int = 1) -> Table:
    """A table whose first columns are words and whose others are numbers."""
    made = Table(title=title)
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i < words else "right")
    return made


def verdict(found: float, at_least: float) -> str:
    """A ratio beside its goal."""
    return f"{found:.2f}, goal {at_least}: {'reached' if found >= at_least else 'NOT REACHED'}"


def save(out: Path, name: str, document: Mapping[str, Any], figure: Figure | None = None) -> None:
    """Write NAME.json, and NAME.png if there is a figure, into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if figure is not None:
        figure.savefig(out / f"{name}.png", dpi=150, bbox_inches="tight")
