"""The corpus index: time to build it, its size, time of a query, on 20 MB of text.

    python benchmarks/corpus_index.py [--text FILE] [--megabytes 20]

Half a minute on one core. The text is that of --text, repeated, or biographies of fictional
worlds; the queries are 2 000 random parts of it, of 1 to 60 bytes, and as many altered ones.
Prints a table.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from pathlib import Path
from typing import TypeVar

import numpy as np

from regard.corpus.index import CorpusIndex, index_files, open_index, save_index
from regard.corpus.search import count, longest_spans
from regard.tasks.world import WorldConfig, make_world

T = TypeVar("T")
QUERIES = 2_000


@dataclass(frozen=True)
class Measured:
    """What was measured of an index; times in seconds."""

    text: int
    """Bytes."""
    file: int
    """Bytes of the index, text included."""
    build: float
    memory: int
    """Peak of the process, in bytes."""
    open: float
    queries: Sequence[float]
    longest: float
    """Longest spans of a text of 10 000 characters."""


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return a call's result and its time in seconds."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def fictional_text(size: int) -> str:
    """Return biographies of fictional worlds, `size` characters at least."""
    lines: list[str] = []
    for seed in count_up():
        if sum(map(len, lines)) >= size:
            break
        lines += make_world(WorldConfig(people=5_600, absent=0, seed=seed)).documents
    return "\n".join(lines) + "\n"


def random_queries(index: CorpusIndex, number: int) -> list[bytes]:
    """Return parts of the text, and the same parts with another byte in the middle."""
    rng = np.random.default_rng(0)
    queries = []
    for _ in range(number):
        start, size = int(rng.integers(len(index.text))), int(rng.integers(1, 61))
        part = bytearray(index.text[start : start + size].tobytes())
        queries.append(bytes(part))
        part[len(part) // 2] = int(rng.integers(128))
        queries.append(bytes(part))
    return queries


def measure(text: str, size: int, folder: Path, number: int = QUERIES) -> Measured:
    """Measure the index of a text that is repeated until it has `size` bytes."""
    data = text.encode()
    corpus, out = folder / "corpus.txt", folder / "corpus.index"
    corpus.write_bytes((data * (size // len(data) + 1))[:size].rpartition(b"\n")[0] + b"\n")
    _, build = timed(lambda: save_index(out, index_files([corpus])))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    index, opening = timed(lambda: open_index(out))
    queries = random_queries(index, number)
    times = [timed(lambda q=query: count(index, q))[1] for query in queries]  # type: ignore[misc]
    _, longest = timed(lambda: longest_spans(index, text[-10_000:][::-1]))
    return Measured(
        text=corpus.stat().st_size,
        file=out.stat().st_size,
        build=build,
        memory=memory,
        open=opening,
        queries=times,
        longest=longest,
    )


def table(measured: Measured) -> str:
    """Return the measurements as a Markdown table."""
    times = measured.queries
    rows = [
        ("text", f"{measured.text / 1e6:.1f} MB"),
        ("build and write", f"{measured.build:.1f} s"),
        ("peak memory of the build", f"{measured.memory / 1e6:.0f} MB"),
        ("index, text included", f"{measured.file / measured.text:.2f} bytes per byte of text"),
        ("open and check", f"{measured.open:.2f} s"),
        ("query, median", f"{statistics.median(times) * 1e3:.3f} ms"),
        ("query, 99th percentile", f"{np.quantile(times, 0.99) * 1e3:.3f} ms"),
        ("longest spans of 10 000 characters", f"{measured.longest:.2f} s"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the corpus index.")
    parser.add_argument("--text", type=Path, help="Text to repeat. Default: fictional biographies.")
    parser.add_argument("--megabytes", type=int, default=20)
    arguments = parser.parse_args()
    size = arguments.megabytes * 10**6
    text = arguments.text.read_text("utf-8") if arguments.text else fictional_text(size)
    with tempfile.TemporaryDirectory() as folder:
        print(table(measure(text, size, Path(folder))))


if __name__ == "__main__":
    main()
