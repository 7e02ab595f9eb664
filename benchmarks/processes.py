"""Cost of training in several processes: seconds of a step, beside one process.

A model of the course's size (4 layers, 8 heads, width 256, context 128, 64 rows a step) trains on
random text in float32: by the plain command and under torchrun, by one process on one and on two
threads, and by two processes of a thread each with `--parallel ddp` and `fsdp`. A process can't be
timed inside another's, so each arm is started again in every round, in turn, and its time is the
median of all its steps but the first of each start.

    python benchmarks/processes.py [--steps 20] [--rounds 3] [--out DIR]

Some 10 minutes on two cores. Prints a table, and writes processes.json into docs/figures.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import measure
import torch
from rich.console import Console
from rich.table import Table

SETTINGS = (
    "tokenizer.kind=characters",
    "model.n_layers=4",
    "model.n_heads=8",
    "model.d_model=256",
    "model.context_length=128",
    "model.dropout=0",
    "training.batch=64",
    "training.log_every=1",
    "training.checkpoint_every=1000",
    "training.epochs=null",
)


class Arm(NamedTuple):
    """A way to start the training."""

    processes: int
    threads: int
    launched: bool
    flags: tuple[str, ...] = ()


PLAIN, PLAIN_2 = "one process, one thread", "one process, two threads"
ARMS = {
    PLAIN: Arm(1, 1, launched=False),
    "one process under torchrun, one thread": Arm(1, 1, launched=True),
    PLAIN_2: Arm(1, 2, launched=False),
    "two processes, a thread each, ddp": Arm(2, 1, launched=True, flags=("--parallel", "ddp")),
    "two processes, a thread each, fsdp": Arm(2, 1, launched=True, flags=("--parallel", "fsdp")),
}


def write_text(path: Path) -> None:
    """Write lines of random letters."""
    draw = random.Random(0)
    lines = ("".join(draw.choices("abcdefgh ", k=127)) for _ in range(4000))
    path.write_text("\n".join(lines))


def step_seconds(arm: Arm, text: Path, steps: int) -> Iterator[float]:
    """Train, and yield the seconds of each step after the first."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = ["-m", "regard", "pretrain", str(text), "--out", str(run), "--no-index"]
        command += [*SETTINGS, f"training.steps={steps}", *arm.flags]
        command += ["--device", "cpu", "--precision", "float32", "--threads", str(arm.threads)]
        if arm.launched:
            torchrun = ["-m", "torch.distributed.run", "--standalone"]
            command = [*torchrun, "--nproc-per-node", str(arm.processes), *command]
        environment = os.environ | {"OMP_NUM_THREADS": str(arm.threads)}
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        yield from (after["seconds"] - before["seconds"] for before, after in pairwise(records))


def main() -> None:
    """Measure all arms in turn, and print and save their medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    measure.warn_of_company()
    taken: dict[str, list[float]] = {name: [] for name in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        write_text(text)
        for _ in range(options.rounds):
            for name, arm in ARMS.items():
                taken[name] += step_seconds(arm, text, options.steps)
    medians = {name: statistics.median(seconds) for name, seconds in taken.items()}
    table = Table("", "ms a step", "over one process with as many threads")
    for name, arm in ARMS.items():
        base = medians[PLAIN_2 if arm.processes * arm.threads == 2 else PLAIN]
        table.add_row(name, f"{1000 * medians[name]:.0f}", f"{medians[name] / base:.3f} ×")
    Console().print(table)
    figures = {"machine": measure.describe(torch.device("cpu")), "seconds": medians}
    measure.save(options.out, "processes", figures)


if __name__ == "__main__":
    main()
