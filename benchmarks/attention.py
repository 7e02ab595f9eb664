"""Attention mechanisms beside their peers: time, memory, growth. Run by `make bench`.

One process, 8 heads of width 64, one row, float32. At each length everyone is timed in rounds,
interleaved; then the memory of one call is taken. Prints tables, and writes attention.json and
attention.png into docs/figures.

    python benchmarks/attention.py [--lengths 512 1024 …] [--rounds 7] [--device cpu] [--out DIR]
                                   [--only BigBird] [--modes forward]

All lengths take some 40 minutes on two cores that do nothing else, and 12 GB of memory. Peers come
with `pip install 'regard[bench]'`; one that isn't there is left out, and said so.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import measure
import torch
from contestants import (
    CONTESTANTS,
    MODES,
    PAIRS,
    TITLES,
    Contestant,
    Inputs,
    Pair,
    Work,
    sdpa_backends,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from regard.attention.cost import Mode

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
GROWTH = 1.1
"""What the memory of a linear mechanism may grow with, as a power of the length."""
DRAWN = (
    ("softmax", "SDPA"),
    ("softmax causal", "SDPA causal"),
    ("FAVOR+", "performer-pytorch"),
    ("FAVOR+ causal", "performer-pytorch causal"),
    ("elu+1 causal", None),
    ("Linformer layer", "linformer package layer"),
    ("BigBird layer", "Hugging Face BigBird layer, no matrix"),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """One contestant at one length, forward or with backward."""

    name: str
    n: int
    mode: Mode
    times: list[float]
    peak_bytes: int
    operations: int | None
    bytes: int | None

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A result of ours beside a peer's."""

    ours: Result
    peer: Result
    claim: float | None

    @property
    def ratio(self) -> measure.Ratio:
        return measure.Ratio.of(self.ours.times, self.peer.times)

    @property
    def holds(self) -> bool | None:
        return None if self.claim is None else self.ratio.median <= self.claim


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The power of the length that a contestant's time and memory grow with."""

    name: str
    mode: Mode
    time: float
    memory: float
    claim: float | None

    @property
    def holds(self) -> bool | None:
        return None if self.claim is None else self.memory <= self.claim


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What the machine does at best."""

    operations: float
    """Floating-point operations a second, in a large product."""
    bytes: float
    """Bytes a second, read and written in a large copy."""

    @staticmethod
    def of(device: torch.device) -> "Rates":
        product, operations = measure.square_product(2048, device, torch.float32)
        copy, size = measure.copying(1 << 28, device)
        return Rates(
            operations=measure.rate(product, operations, device),
            bytes=measure.rate(copy, size, device),
        )

    def share(self, result: Result) -> float | None:
        """Least time that the result's operations and bytes take, as a part of its time."""
        if result.operations is None or result.bytes is None:
            return None
        least = max(result.operations / self.operations, result.bytes / self.bytes)
        return least / result.seconds


def at_length(
    n: int, mode: Mode, rounds: int, device: torch.device, only: str = ""
) -> list[Result]:
    """All contestants at one length, or those with a word in their names and their peers."""
    inputs, peers = Inputs(n, device), {pair.peer for pair in PAIRS if only in pair.ours}
    chosen = [c for c in CONTESTANTS if c.runs(n, mode) and (only in c.name or c.name in peers)]
    works = {c.name: c.make(inputs) for c in chosen}
    calls = {name: getattr(work, mode) for name, work in works.items()}
    times = measure.interleaved(calls, rounds, device)
    return [result(name, n, mode, work, times[name], device) for name, work in works.items()]


def result(
    name: str, n: int, mode: Mode, work: Work, times: list[float], device: torch.device
) -> Result:
    """Times, with the memory of one more call and what it should cost."""
    cost = work.cost(mode) if work.cost else None
    return Result(
        name=name,
        n=n,
        mode=mode,
        times=times,
        peak_bytes=measure.peak_bytes(getattr(work, mode), device),
        operations=cost.operations if cost else None,
        bytes=cost.bytes if cost else None,
    )


def compare(results: Sequence[Result], pairs: Sequence[Pair] = PAIRS) -> list[Comparison]:
    """The pairs whose both sides were measured at one length."""
    by_name = {result.name: result for result in results}
    return [
        Comparison(ours=ours, peer=peer, claim=pair.claim(ours.n, ours.mode))
        for pair in pairs
        if (ours := by_name.get(pair.ours)) and (peer := by_name.get(pair.peer))
    ]


def growth(contestant: Contestant, mode: Mode, results: Sequence[Result]) -> Growth | None:
    """The fit over the longer half of the lengths, where what is constant no longer counts."""
    mine = [r for r in results if r.name == contestant.name and r.mode == mode]
    if len(mine) < 2:
        return None
    mine = mine[len(mine) // 2 :] if len(mine) > 3 else mine
    lengths = [r.n for r in mine]
    return Growth(
        name=contestant.name,
        mode=mode,
        time=measure.exponent(lengths, [r.seconds for r in mine]),
        memory=measure.exponent(lengths, [r.peak_bytes for r in mine]),
        claim=GROWTH if contestant.linear else None,
    )


def notes(lengths: Sequence[int]) -> list[str]:
    """What was left out, and what has to be known."""
    said = [f"{c.name}: not installed ({c.package})" for c in CONTESTANTS if not c.installed]
    for c in CONTESTANTS:
        left_out = [str(n) for n in lengths if c.installed and not c.runs(n, "forward")]
        if left_out:
            said.append(f"{c.name}: not measured at {', '.join(left_out)}: {c.note}")
        elif c.note:
            said.append(f"{c.name}: {c.note}")
    return said


# Tables


def verdict(holds: bool | None) -> str:
    return "" if holds is None else "yes" if holds else "NO"


def time_table(comparisons: Sequence[Comparison]) -> Table:
    """Ours beside the peers."""
    first = comparisons[0].ours
    made = measure.table(
        f"{first.n} tokens, {TITLES[first.mode]}",
        *("ours", "peer", "ms", "peer's ms", "ratio", "quartiles", "claim", "holds"),
        *("MiB", "peer's MiB"),
        words=2,
    )
    for c in comparisons:
        made.add_row(
            c.ours.name,
            c.peer.name,
            *(f"{x.seconds * 1e3:.3g}" for x in (c.ours, c.peer)),
            f"{c.ratio.median:.3f}",
            f"{c.ratio.low:.2f}–{c.ratio.high:.2f}",
            "" if c.claim is None else f"≤ {c.claim:.3g}",
            verdict(c.holds),
            *(f"{x.peak_bytes / 2**20:.1f}" for x in (c.ours, c.peer)),
        )
    return made


def cost_table(results: Sequence[Result], rates: Rates) -> Table:
    """What ours should cost, and how far the time is from that."""
    made = measure.table(
        f"{results[0].n} tokens, {TITLES[results[0].mode]}: what it should cost",
        *("mechanism", "bound by", "ms", "GFLOP", "MB", "GFLOP/s", "GB/s", "least time / time"),
        words=2,
    )
    for r in results:
        if (share := rates.share(r)) is None or r.operations is None or r.bytes is None:
            continue
        by_bytes = r.bytes / rates.bytes > r.operations / rates.operations
        made.add_row(
            r.name,
            "memory" if by_bytes else "arithmetic",
            f"{r.seconds * 1e3:.3g}",
            f"{r.operations / 1e9:.3g}",
            f"{r.bytes / 1e6:.3g}",
            f"{r.operations / 1e9 / r.seconds:.3g}",
            f"{r.bytes / 1e9 / r.seconds:.3g}",
            f"{share:.2f}",
        )
    return made


def growth_table(grown: Sequence[Growth]) -> Table:
    """Fitted powers."""
    title = "growth: power of the length fitted to the longer half of lengths"
    columns = "what", "", "time", "memory", "claim on memory", "holds"
    made = measure.table(title, *columns, words=2)
    for g in grown:
        claim = "" if g.claim is None else f"≤ {g.claim}"
        numbers = f"{g.time:.2f}", f"{g.memory:.2f}"
        made.add_row(g.name, TITLES[g.mode], *numbers, claim, verdict(g.holds))
    return made


def figure(results: Sequence[Result]) -> Figure:
    """Time and memory over the length, ours as lines and peers dashed in the same color."""
    drawn = Figure(figsize=(13, 10), layout="constrained")
    panels = drawn.subplots(2, 2, sharex=True)
    for row, mode in zip(panels, MODES, strict=True):
        of_mode = [r for r in results if r.mode == mode]
        draw(row[0], of_mode, lambda r: r.seconds * 1e3)
        draw(row[1], of_mode, lambda r: r.peak_bytes / 2**20)
        row[0].set_title(f"{TITLES[mode]}: time, ms")
        row[1].set_title(f"{TITLES[mode]}: peak memory, MiB")
    lengths = sorted({r.n for r in results})
    for panel in panels[1]:
        panel.set_xticks(lengths, [str(n) for n in lengths])
        panel.set_xlabel("tokens")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=4)
    return drawn


def draw(panel: Axes, results: Sequence[Result], amount: Callable[[Result], float]) -> None:
    """One line for each of those drawn that were measured."""
    for i, (ours, peer) in enumerate(DRAWN):
        for name, style, marker in ((ours, "-", "o"), (peer, "--", "x")):
            mine = [r for r in results if r.name == name]
            if not mine:
                continue
            panel.loglog(
                [r.n for r in mine],
                [amount(r) for r in mine],
                color=f"C{i}",
                linestyle=style,
                marker=marker,
                markersize=4,
                label=name,
            )
    panel.minorticks_off()
    panel.grid(alpha=0.3)


def document(
    arguments: argparse.Namespace,
    rates: Rates,
    results: Sequence[Result],
    comparisons: Sequence[Comparison],
    grown: Sequence[Growth],
) -> dict[str, Any]:
    """All numbers, for attention.json."""
    device = torch.device(arguments.device)
    return {
        "machine": measure.describe(device),
        "setting": {name: vars(arguments)[name] for name in ("rounds", "lengths", "modes")},
        "rates": asdict(rates),
        "backends": sdpa_backends(device),
        "notes": notes(arguments.lengths),
        "results": [
            asdict(r) | {"seconds": r.seconds, "least_time_share": rates.share(r)} for r in results
        ],
        "comparisons": [
            {
                "ours": c.ours.name,
                "peer": c.peer.name,
                "n": c.ours.n,
                "mode": c.ours.mode,
                "ratio": c.ratio.median,
                "quartiles": [c.ratio.low, c.ratio.high],
                "at_most": c.claim,
                "holds": c.holds,
            }
            for c in comparisons
        ],
        "growth": [asdict(g) | {"holds": g.holds} for g in grown],
    }


def main() -> None:
    """Measure, print, write."""
    assert get_args(Mode)[:2] == MODES
    parser = measure.options(__doc__, lengths=LENGTHS, rounds=7)
    parser.add_argument(
        "--only", metavar="WORD", default="", help="those with WORD in their name, and their peers"
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES, help="passes to time")
    arguments = measure.parse(parser)
    device, console = torch.device(arguments.device), Console(width=140)
    rates = Rates.of(device)
    console.print(
        f"{rates.operations / 1e9:.0f} GFLOP/s in a product of 2048 × 2048 float32, "
        f"{rates.bytes / 1e9:.1f} GB/s in a copy of 256 MiB"
    )
    console.print("torch's choice:", sdpa_backends(device))
    results: list[Result] = []
    comparisons: list[Comparison] = []
    for n in arguments.lengths:
        for mode in arguments.modes:
            here = at_length(n, mode, arguments.rounds, device, arguments.only)
            compared = compare(here)
            console.print(time_table(compared), cost_table(here, rates))
            results += here
            comparisons += compared
    grown = [g for c in CONTESTANTS for mode in MODES if (g := growth(c, mode, results))]
    console.print(growth_table(grown))
    for note in notes(arguments.lengths):
        console.print(f"- {note}")
    written = document(arguments, rates, results, comparisons, grown)
    name = f"attention-{arguments.only.lower()}" if arguments.only else "attention"
    measure.save(arguments.out, name, written, figure(results))


if __name__ == "__main__":
    main()
