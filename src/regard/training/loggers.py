"""Loggers of training metrics: a file, the terminal, TensorBoard. Imports no torch."""

import json
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from regard.files import append_line, write_file

if TYPE_CHECKING:
    from regard.training.checkpoint import Progress, Publishing
    from regard.training.throughput import Throughput

Record = dict[str, Any]
CheckpointReport = Callable[[Record], Record]
"""Returns more values for the record of a checkpoint, given those of its validation."""

LARGE = 10_000_000
"""Size in bytes beyond which the tokenization of a text is reported without a terminal."""


def no_report(_: Record) -> Record:
    """Report nothing more."""
    return {}


class Logger(ABC):
    """Writes records of metrics somewhere."""

    @abstractmethod
    def log(self, record: Record) -> None:
        """Write a record; it has at least a step."""

    def close(self) -> None:  # noqa: B027 (most have nothing to finish)
        """Finish writing."""


class MetricsFile(Logger):
    """metrics.jsonl: a line of JSON for each record."""

    def __init__(self, path: Path, step: int) -> None:
        """Resume after `step`: later lines, and a torn one, are removed."""
        self._path = path
        kept = [line for line in read_metrics(path) if line["step"] <= step]
        write_file(path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def log(self, record: Record) -> None:
        append_line(self._path, json.dumps(record))


def read_metrics(path: Path) -> list[Record]:
    """Return the records of a metrics.jsonl; a last line torn by a kill is left out.

    Damaged lines are left out too, and a warning names them: nothing depends on the metrics.
    """
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    found = [_read_record(line) for line in lines]
    if damaged := [number for number, record in enumerate(found, 1) if record is None]:
        first, *others = damaged
        more = f" and {len(others)} more" if others else ""
        warnings.warn(f"{path}:{first}: is damaged{more}; left out", stacklevel=2)
    return [record for record in found if record is not None]


class _Measures(msgspec.Struct):
    """Values of a record that its readers require."""

    step: int
    loss: float
    tokens_per_second: int
    seconds: float
    validation_loss: float = 0.0


def _read_record(line: bytes) -> Record | None:
    """Return a line's record; None if it is damaged."""
    try:
        msgspec.json.decode(line, type=_Measures)
        return cast("Record", msgspec.json.decode(line))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


class Bar(Logger):
    """A progress bar in a terminal: loss, speed, memory and time left."""

    def __init__(self, title: str, steps: int, step: int) -> None:
        self._progress = ProgressBar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),  # as wide as the others allow
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            expand=True,
        )
        self._task = self._progress.add_task(title, total=steps, completed=step, state="")
        self._progress.start()

    def log(self, record: Record) -> None:
        self._progress.update(self._task, completed=record["step"], state=describe(record))
        if "sample" in record:
            self._progress.console.print(sample_line(record), markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


class Lines(Logger):
    """A plain line for about every tenth of the steps, without a terminal."""

    def __init__(self, title: str, steps: int, step: int) -> None:
        self._title, self._steps, self._next = title, steps, step

    def log(self, record: Record) -> None:
        if record["step"] >= min(self._next, self._steps) or "validation_loss" in record:
            self._next = record["step"] + max(1, self._steps // 10)
            left = f"{record['seconds_left']:.0f} s left"
            line = f"{self._title} {record['step']}/{self._steps} {describe(record)} · {left}"
            print(line, file=sys.stderr, flush=True)
        if "sample" in record:
            print(sample_line(record), file=sys.stderr, flush=True)


class TensorBoard(Logger):
    """Event files in the run's folder."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def log(self, record: Record) -> None:
        for name, value in record.items():
            if name != "step":
                add = self._writer.add_text if isinstance(value, str) else self._writer.add_scalar
                add(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


def describe(record: Record) -> str:
    """Return the loss of a record as text, with validation or else with speed and memory."""
    parts = [f"loss {record['loss']:.3f}"]
    if "validation_loss" in record:
        parts.append(f"validation {record['validation_loss']:.3f}")
        if "perplexity" in record:
            parts.append(f"perplexity {record['perplexity']:.2f}")
        return " · ".join(parts)
    parts.append(f"{record['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in record:
        parts.append(f"MFU {record['mfu']:.0%}")
    if "memory_mb" in record:
        parts.append(f"{record['memory_mb']:,.0f} MB")
    return " · ".join(parts)


def sample_line(record: Record) -> str:
    """Return the sample of a record on one line."""
    return f"sample: {record['sample']}".replace("\n", "⏎")


def make_loggers(
    run: Path, title: str, steps: int, step: int, *, quiet: bool, tensorboard: bool = True
) -> list[Logger]:
    """Return the metrics file, the terminal unless quiet, and TensorBoard if installed."""
    loggers: list[Logger] = [MetricsFile(run / "metrics.jsonl", step)]
    if not quiet:
        loggers.append((Bar if sys.stderr.isatty() else Lines)(title, steps, step))
    if tensorboard:
        with suppress(ImportError):  # the extra may not be installed
            loggers.append(TensorBoard(run / "tensorboard", step))
    return loggers


@contextmanager
def track_text(size: int) -> Iterator[Callable[[str, int], None]]:
    """Show how much of a text of `size` bytes each stage has read: a bar, or lines if no terminal.

    The yielded function takes a stage and the number of characters read since its last call.
    """
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with ProgressBar(*columns, console=Console(stderr=True)) as progress:
            tasks: dict[str, TaskID] = {}

            def advance(stage: str, characters: int) -> None:
                if stage not in tasks:
                    tasks[stage] = progress.add_task(stage, total=size)
                progress.advance(tasks[stage], characters)

            yield advance
            for task in tasks.values():  # a character may take several bytes
                progress.update(task, completed=size)
        return
    done: dict[str, int] = {}

    def report(stage: str, characters: int) -> None:
        before, done[stage] = done.get(stage, 0), done.get(stage, 0) + characters
        if size > LARGE and done[stage] * 10 // size > before * 10 // size:
            print(f"{stage}: {done[stage] / size:.0%}", file=sys.stderr, flush=True)

    yield report


class MetricsLog:
    """Writes the metrics of steps to all loggers."""

    def __init__(
        self, loggers: Sequence[Logger], throughput: "Throughput", publishing: "Publishing"
    ) -> None:
        self._loggers, self._throughput, self._publishing = loggers, throughput, publishing

    def write(self, record: Record, progress: "Progress", steps: int) -> "Progress":
        """Write a record, with the mean loss since the previous record.

        Returns:
            The progress without these losses.
        """
        record |= {
            "loss": sum(progress.losses) / len(progress.losses),
            "tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
            **self._throughput.record(),
            "seconds_left": round(progress.seconds / progress.step * (steps - progress.step), 1),
        }
        with self._publishing():
            for logger in self._loggers:
                logger.log(record)
        return msgspec.structs.replace(progress, losses=())

    def close(self) -> None:
        """Finish writing."""
        for logger in self._loggers:
            logger.close()
