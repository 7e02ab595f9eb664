"""Rate and memory of `regard pack`, with kills, and of the start of a training on what it writes.

Writes documents of random words (Zipf's law) as JSONL, packs them with a tokenizer of 32 000 byte
pairs in worker processes, kills that (kill -9) at even shares of the text and continues it. A small
model is then trained for a few steps on the packed corpus, and on a thousandth of the text, for the
memory and the time that are the model's. Memory is the proportional set size of all processes
together, read every half second (Linux).

    python benchmarks/pack.py [--megabytes 200] [--jobs 2] [--kills 1] [--compare] [--out FILE]

`--compare` packs once more without a kill, with the same tokenizer, and compares all token files.
5 GB take some 20 to 40 minutes on two cores, and 12 GB of disk in --folder (17 with --compare).
While the file --pause exists, nothing is packed, and no time is counted. Prints a table, and writes
the figures as JSON to FILE.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path

SAMPLING = 0.5
STEPS = 20
SMALL = [
    "model.n_layers=2",
    "model.d_model=128",
    "model.n_heads=4",
    "model.context_length=256",
    "training.epochs=null",
    "training.batch=8",
    "training.log_every=1",
    f"training.steps={STEPS}",
]
SENTENCES = 20_000


# The text


def write_text(path: Path, size: int) -> None:
    """Write documents of random sentences of random words, about `size` bytes of JSONL."""
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(50_000)]
    zipf = list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
    sentences = [
        " ".join(draw.choices(words, cum_weights=zipf, k=draw.randint(5, 25)))
        for _ in range(SENTENCES)
    ]
    written = 0
    with path.open("w") as file:
        while written < size:
            text = ". ".join(draw.choices(sentences, k=draw.randint(2, 25)))
            written += file.write(json.dumps({"text": text}) + "\n")


# Processes


@dataclass
class Measured:
    """A process that has ended, or was killed."""

    seconds: float = 0.0
    """Without pauses."""
    peak: int = 0
    """Largest proportional set size of the process and its children, in bytes."""
    marks: dict[str, float] = field(default_factory=dict)
    """Seconds after which each of the moments that were waited for came."""


@dataclass(frozen=True)
class Watch:
    """How processes are watched: `pause` is a file that stops them while it exists."""

    pause: Path | None

    def run(
        self,
        command: Sequence[str],
        *,
        kill_when: Callable[[], bool] = lambda: False,
        moments: dict[str, Callable[[], bool]] | None = None,
    ) -> Measured:
        """Run a command of Regard, and kill it once `kill_when` is true."""
        measured, paused, started = Measured(), 0.0, time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "regard", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(process.communicate()[0]))
        reader.start()
        killed, sampled = False, 0.0
        while process.poll() is None:
            paused += self._paused(process.pid)
            now = time.perf_counter() - started - paused
            for name, reached in (moments or {}).items():
                if name not in measured.marks and reached():
                    measured.marks[name] = now
            if now - sampled >= SAMPLING:
                measured.peak, sampled = max(measured.peak, _memory(process.pid)), now
                if not killed and kill_when():
                    process.send_signal(signal.SIGKILL)
                    killed = True
            time.sleep(0.1)
        reader.join()
        if process.returncode and not killed:
            raise SystemExit(said[0])
        measured.seconds = time.perf_counter() - started - paused
        return measured

    def _paused(self, pid: int) -> float:
        """Stop a process and its children while the file exists; return the seconds."""
        if self.pause is None or not self.pause.exists():
            return 0.0
        started = time.perf_counter()
        _signal(pid, signal.SIGSTOP)
        while self.pause.exists():
            time.sleep(1)
        _signal(pid, signal.SIGCONT)
        return time.perf_counter() - started


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [
        int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()
    ]


def _signal(pid: int, number: int) -> None:
    for child in _children(pid):
        _signal(child, number)
    os.kill(pid, number)


def _memory(pid: int) -> int:
    """Return the proportional set size of a process and all below it."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = _children(pid)
    except OSError:  # it has ended
        return 0
    own = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return own * 1024 + sum(map(_memory, children))


# Figures


def packed_with_kills(
    watch: Watch, command: Sequence[str], written: Path, tokens: int, kills: int
) -> list[Measured]:
    """Pack, and kill that whenever another share of about so many bytes of tokens is written."""

    def reached(size: int) -> bool:
        return written.exists() and written.stat().st_size >= size

    runs = []
    for kill in range(1, kills + 1):
        share = tokens * kill // (kills + 1)
        runs.append(watch.run(command, kill_when=partial(reached, share)))
    return [*runs, watch.run(command)]


def training(watch: Watch, corpus: Path, run: Path) -> Measured:
    """Train on a packed corpus for a few steps, and note the first."""
    command = ["pretrain", str(corpus), "--out", str(run), "--no-index", *SMALL, "--device", "cpu"]
    metrics = run / "metrics.jsonl"
    first = {"first step": lambda: metrics.exists() and metrics.stat().st_size > 0}
    return watch.run(command, moments=first)


def digest(folder: Path) -> str:
    """Return a hash of a packed corpus's token files."""
    files = sorted(path for path in folder.iterdir() if path.suffix in {".bin", ".starts"})
    hashed = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            while block := file.read(2**20):
                hashed.update(block)
    return hashed.hexdigest()


def measure(folder: Path, chosen: argparse.Namespace) -> dict[str, float | int | str | bool]:
    """Return all figures; files are written to `folder`."""
    watch, jobs = Watch(chosen.pause), ["--jobs", str(chosen.jobs)]
    text, packed = folder / "text.jsonl", folder / "packed"
    write_text(text, chosen.megabytes * 10**6)
    size = text.stat().st_size
    command = ["pack", str(text), "--tokenizer", "byte-pairs:32000", "--out", str(packed), *jobs]
    written = folder / ".packed.partial" / "training.bin"
    runs = packed_with_kills(watch, command, written, size // 3, chosen.kills)
    seconds = sum(run.seconds for run in runs)
    header = json.loads((packed / "packed.json").read_text())
    figures: dict[str, float | int | str | bool] = {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "jobs": chosen.jobs,
        "megabytes": size / 1e6,
        "million tokens": sum(s["tokens"] for s in header["sizes"].values()) / 1e6,
        "documents": sum(s["documents"] for s in header["sizes"].values()),
        "kills": chosen.kills,
        "seconds of packing, with the kills": seconds,
        "MB/s, with the kills and the training of the tokenizer": size / 1e6 / seconds,
        "peak MiB of packing": max(run.peak for run in runs) / 2**20,
    }
    if chosen.compare:
        known = ["pack", str(text), "--tokenizer", str(packed), *jobs]
        whole = watch.run([*known, "--out", str(folder / "whole")])
        figures |= {
            "seconds of packing with a known tokenizer": whole.seconds,
            "MB/s with a known tokenizer": size / 1e6 / whole.seconds,
            "equal to an uninterrupted packing": digest(packed) == digest(folder / "whole"),
        }
    few = folder / "few.jsonl"
    write_text(few, chosen.megabytes * 10**3)
    watch.run(["pack", str(few), "--tokenizer", str(packed), "--out", str(folder / "few"), *jobs])
    for name, corpus in (("a thousandth of it", folder / "few"), ("the corpus", packed)):
        run = training(watch, corpus, folder / f"run-{corpus.name}")
        figures[f"seconds to the first step on {name}"] = run.marks["first step"]
        figures[f"peak MiB of training on {name}"] = run.peak / 2**20
    return figures


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--compare", action="store_true", help="Pack once without a kill, too.")
    parser.add_argument("--folder", type=Path, help="Folder for temporary files.")
    parser.add_argument("--pause", type=Path, help="File that stops processes while it exists.")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as place:
        figures = measure(Path(place), chosen)
    for name, value in figures.items():
        print(f"{name}: {value:,.1f}" if isinstance(value, float) else f"{name}: {value}")
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
