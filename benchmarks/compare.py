"""What a comparison costs beside the training of its cells.

    python benchmarks/compare.py [--steps 100] [--folder FOLDER]

prints, for 16 equal cells, the seconds with one job and with two, and the seconds of a cell beside
its training; then, for 1,000 finished cells, the seconds of `regard compare FOLDER` and the size of
its page. The thousand are copies of a trained cell with other names of rows, rates and seeds.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from shutil import copyfile
from subprocess import DEVNULL, run

import msgspec
import tomli_w

from regard.comparison.folder import Sweep, save_sweep
from regard.config import parse_toml

CELLS = 16
KINDS, RATES, SEEDS = 50, (0.0001, 0.001, 0.01, 0.1), 5
"""Axes of the thousand cells."""
SETTINGS = ("task.vocabulary=1024", "model.n_layers=1", "training.log_every=2")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="steps of a cell")
    parser.add_argument("--folder", type=Path, help="folder for the cells; default: temporary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        one, two = (trained(Path(folder) / f"{jobs}", jobs, options.steps) for jobs in (1, 2))
        print(f"{CELLS} cells: {one:.1f} s with one job, {two:.1f} s with two: {one / two:.2f} ×")
        ended = sorted((Path(folder) / "1").glob("cells/*/outcome.json"), key=os.path.getmtime)
        beside = beside_training(ended)
        print(f"beside training: {beside:.2f} s per cell, the first apart")
        thousand(ended[0].parent, Path(folder) / "thousand")
        began = time.perf_counter()
        regard("compare", str(Path(folder) / "thousand"))
        took = time.perf_counter() - began
        size = (Path(folder) / "thousand" / "report.html").stat().st_size / 1e6
        print(f"{KINDS * len(RATES) * SEEDS:,} finished cells: {took:.2f} s, page of {size:.2f} MB")


def regard(*arguments: str) -> None:
    """Run a command."""
    run([sys.executable, "-m", "regard", *arguments], check=True, stdout=DEVNULL)


def trained(out: Path, jobs: int, steps: int) -> float:
    """Return the seconds of a comparison of equal cells."""
    settings = (*SETTINGS, f"training.steps={steps}")
    began = time.perf_counter()
    axes = ("--seeds", f"{CELLS}", "--jobs", f"{jobs}", "--device", "cpu", "--out", str(out))
    regard("compare", "mqar", *axes, *settings)
    return time.perf_counter() - began


def beside_training(ended: list[Path]) -> float:
    """Return the mean seconds from the end of a cell to that of the next, less its training."""
    wall = ended[-1].stat().st_mtime - ended[0].stat().st_mtime
    training = sum(json.loads(path.read_bytes())["costs"]["seconds"] for path in ended[1:])
    return float(wall - training) / (len(ended) - 1)


def thousand(cell: Path, out: Path) -> None:
    """Write a folder of finished cells, copies of one that differ in three axes."""
    axes = {"model.attention.kind": [f"kind-{n}" for n in range(KINDS)]}
    tuned = {"training.lr": list(map(str, RATES))}
    out.mkdir()
    save_sweep(out, msgspec.convert({"over": axes, "tune": tuned}, Sweep))
    recipe = parse_toml((cell / "config.toml").read_text("utf-8"), where="config.toml")
    cells = product(axes["model.attention.kind"], RATES, range(SEEDS))
    for kind, recipe["training"]["lr"], recipe["seed"] in cells:
        recipe["model"]["attention"]["kind"] = kind
        path = out / "cells" / f"{kind}-{recipe['training']['lr']}-{recipe['seed']}"
        path.mkdir(parents=True)
        (path / "config.toml").write_text(tomli_w.dumps(recipe), encoding="utf-8")
        for name in ("metrics.jsonl", "outcome.json"):
            copyfile(cell / name, path / name)


if __name__ == "__main__":
    main()
