"""Rate and peak memory of `regard pack`, and of the start of a training on a packed corpus.

Writes documents of random words (Zipf's law) as JSONL, packs them with a tokenizer of 32 000 byte
pairs in worker processes, kills that once halfway and continues it, and compares the result with an
uninterrupted one if `--compare` is given. A small model is then trained for a few steps. Memory is
the proportional set size of all processes together, read every half second (Linux).

    python benchmarks/pack.py [--megabytes 200] [--jobs 2] [--compare] [--out FILE]

Prints a table, and writes the figures as JSON to FILE.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLING = 0.5
SMALL = [
    "model.n_layers=2",
    "model.d_model=128",
    "model.n_heads=4",
    "model.context_length=256",
    "pretraining.epochs=null",
    "pretraining.batch=8",
]


@dataclass(frozen=True)
class Measured:
    """A process that has ended, or was killed."""

    seconds: float
    peak: int
    """Largest proportional set size of the process and its children, in bytes."""
    output: str


def write_text(path: Path, size: int) -> None:
    """Write documents of random words, about `size` bytes of JSONL."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(50_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    written = 0
    with path.open("w") as file:
        while written < size:
            lengths = [draw.randint(20, 400) for _ in range(200)]
            drawn = iter(draw.choices(words, weights, k=sum(lengths)))
            for length in lengths:
                text = " ".join(next(drawn) for _ in range(length))
                written += file.write(json.dumps({"text": text}) + "\n")


def measure(command: Sequence[str], *, kill_when: Path | None = None, at: int = 0) -> Measured:
    """Run a command of Regard; kill it when the file `kill_when` has `at` bytes."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    peaks = [0]

    def watch() -> None:
        while process.poll() is None:
            peaks.append(_memory(process.pid))
            if kill_when and kill_when.exists() and kill_when.stat().st_size >= at:
                process.send_signal(signal.SIGKILL)
            time.sleep(SAMPLING)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    if process.returncode and not kill_when:
        raise SystemExit(output)
    return Measured(time.perf_counter() - started, max(peaks), output)


def _memory(pid: int) -> int:
    """Return the proportional set size of a process and all below it."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return 0
    own = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return own * 1024 + sum(_memory(int(child)) for child in children)


def digest(folder: Path) -> str:
    """Return a hash of a packed corpus's token files."""
    files = sorted(path for path in folder.iterdir() if path.suffix in {".bin", ".starts"})
    hashed = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(2**20):
                hashed.update(block)
    return hashed.hexdigest()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--compare", action="store_true", help="Pack once without a kill, too.")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        text, packed = folder / "text.jsonl", folder / "packed"
        write_text(text, chosen.megabytes * 10**6)
        size = text.stat().st_size
        command = ["pack", str(text), "--tokenizer", "byte-pairs:32000", "--jobs", str(chosen.jobs)]
        halfway = folder / ".packed.partial" / "training.bin"
        killed = measure([*command, "--out", str(packed)], kill_when=halfway, at=size // 5)
        continued = measure([*command, "--out", str(packed)])
        figures = {
            "megabytes": size / 1e6,
            "jobs": chosen.jobs,
            "cores": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
            "seconds until the kill": killed.seconds,
            "seconds to continue": continued.seconds,
            "MB/s, tokenizer training included": size / 1e6 / (killed.seconds + continued.seconds),
            "peak MiB of packing": max(killed.peak, continued.peak) / 2**20,
        }
        if chosen.compare:
            known = ["pack", str(text), "--tokenizer", str(packed), "--jobs", str(chosen.jobs)]
            whole = measure([*known, "--out", str(folder / "whole")])
            same = digest(packed) == digest(folder / "whole")
            figures |= {
                "seconds of packing without tokenizer training": whole.seconds,
                "MB/s without tokenizer training": size / 1e6 / whole.seconds,
                "equal to an uninterrupted packing": same,
            }
        planned = ["pretrain", str(packed), "--out", str(folder / "run"), "--no-index", *SMALL]
        dry = measure([*planned, "pretraining.steps=20", "--device", "cpu", "--dry-run"])
        trained = measure([*planned, "pretraining.steps=20", "--device", "cpu"])
        figures |= {
            "seconds to plan a training": dry.seconds,
            "seconds of 20 steps with the plan": trained.seconds,
            "peak MiB of training": trained.peak / 2**20,
        }
    for name, value in figures.items():
        print(f"{name}: {value:,.1f}" if isinstance(value, float) else f"{name}: {value}")
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
