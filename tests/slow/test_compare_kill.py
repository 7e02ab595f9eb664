"""Comparisons whose processes are killed end as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from launched import Forked
from regard.comparison.executors import run_locally
from regard.comparison.folder import create_cell, read_outcome
from regard.comparison.grid import CellSettings
from regard.comparison.table import MEASURED
from regard.runs.recipes import find_recipe
from tiny import contents
from tiny_comparisons import TINY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]

AXES = (
    *("--over", "model.attention.kind=softmax,elu", "--tune", "training.lr=1e-3,1e-2"),
    *("--seeds", "1", "--jobs", "2", "--device", "cpu"),
)
CELLS, LINES = 4, 6
"""Cells, and lines of the metrics of each."""
LONG = (*TINY, "training.steps=300", "training.checkpoint_every=50", "training.log_every=50")


def command(out: Path) -> list[str]:
    return ["-m", "regard", "compare", "mqar", *AXES, *LONG, "--out", str(out)]


def start(out: Path) -> Forked:
    return Forked(0, command(out))


def children(parent: int) -> list[int]:
    stats = {path.parent.name: path for path in Path("/proc").glob("[0-9]*/stat")}
    found = []
    for pid, path in stats.items():
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(pid))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def result(out: Path) -> dict[str, Any]:
    """Weights of all cells, and all columns that aren't measurements."""
    table = json.loads((out / "table.json").read_text())
    rows = [{k: v for k, v in row.items() if k not in MEASURED} for row in table["rows"]]
    weights = {
        path.parent.name: path.read_bytes() for path in (out / "cells").glob("*/model.safetensors")
    }
    return {"rows": rows, "failures": table["failures"], "weights": weights}


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.findings)])
def test_kills_all_over_the_training_change_nothing(kills: int, tmp_path: Path) -> None:
    """Every third is of a worker, the others are of the command; the first comes at its start."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    # Not forked: its sets have their own order.
    alone = [sys.executable, *command(whole), "--jobs", "1"]
    subprocess.run(alone, check=True, capture_output=True)
    draw = random.Random(kills)
    process = start(killed)
    for kill in range(kills):
        reached = CELLS * LINES * kill / (kills + 1)
        while lines(killed) < reached or not (workers := children(process.pid)):
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.2))
        if kill % 3 == 1:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(workers), signal.SIGKILL)
        else:
            process.kill()
            assert process.wait() in (-signal.SIGKILL, 0)
            process = start(killed)
    assert process.wait() == 0
    found = result(killed)
    assert len(found["weights"]) == CELLS
    assert found == result(whole)


def lines(out: Path) -> int:
    """How many lines the metrics of all cells have."""
    files = out.glob("cells/*/metrics.jsonl")
    return sum(file.read_text("utf-8").count("\n") for file in files)


def test_a_worker_that_outlives_its_command_writes_nothing(tmp_path: Path) -> None:
    """It is stopped in its training, and goes on after another has ended the cell."""
    steps = ("training.steps=1000", "training.checkpoint_every=100", "training.log_every=50")
    recipe = find_recipe("mqar", [*TINY, *steps])
    cell = create_cell(tmp_path, recipe, CellSettings(device="cpu"))
    alone = create_cell(tmp_path / "alone", recipe, CellSettings(device="cpu"))
    command = [sys.executable, "-m", "regard.comparison.worker", str(os.getpid())]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as orphan,
        ExitStack() as at_the_end,
    ):
        at_the_end.callback(orphan.kill)
        assert orphan.stdin is not None
        assert orphan.stdout is not None
        assert orphan.stderr is not None
        orphan.stdin.write(f"{json.dumps(str(cell))}\n".encode())
        orphan.stdin.flush()
        while not (cell / "checkpoints").exists():
            assert orphan.poll() is None
            time.sleep(0.01)
        stop(orphan, cell)
        list(run_locally([alone, cell], jobs=1, log=tmp_path / "log"))
        before = contents(cell)
        orphan.send_signal(signal.SIGCONT)
        assert orphan.stdout.readline()
        orphan.stdin.close()
        orphan.wait()
        assert b"attempt 1 is stale" in orphan.stderr.read()
    assert contents(cell) == before
    outcome = read_outcome(cell)
    assert outcome is not None
    assert outcome.attempt == 2
    assert (cell / "model.safetensors").read_bytes() == (alone / "model.safetensors").read_bytes()


def stop(process: "subprocess.Popen[bytes]", cell: Path) -> None:
    """Stop a process between two writes, as one that holds the lock would hold up all others."""
    while True:
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        try:
            with FileLock(cell / ".publishing.lock", timeout=0):
                return
        except Timeout:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
