"""Executors: generators that train cells and yield each one that has ended.

An executor gets only the paths of cells; results are read from their folders.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread

from regard.comparison.folder import give_up
from regard.operating_system import interrupt, new_group_flag, process_cpu_count, signal_name

ATTEMPTS = 3
"""Number of processes that may die while training a cell before it counts as failed."""
PATIENCE = 30.0
"""Seconds that workers have after Ctrl-C to save their states."""


def default_jobs(threads: int) -> int:
    """Return the number of cells, of `threads` each, that the process's CPU cores can run at once.

    At least 1.
    """
    return max(1, process_cpu_count() // threads)


def run_locally(
    cells: Sequence[Path], *, jobs: int, log: Path, device: str = "auto"
) -> Generator[Path, None, None]:
    """Train cells in worker processes, `jobs` at a time; yield each that has ended.

    A worker trains one cell after another. If it dies, its cell is tried again and resumes. The
    output of workers is appended to `log`. Workers share the GPUs, each with one to see, unless
    `device` numbers that of all cells, such as cuda:1.
    """
    waiting, ended, closed = deque(cells), SimpleQueue[Path | Exception](), Event()
    slots = [
        _Slot({} if ":" in device else _share_of_gpus(number), log)
        for number in range(min(jobs, len(cells)))
    ]
    threads: list[Thread] = []
    try:
        for slot in slots:
            thread = Thread(target=slot.work, args=(waiting, ended, closed))
            thread.start()
            threads.append(thread)
        for _ in cells:
            yield _next_ended(ended)
    except KeyboardInterrupt:
        closed.set()
        for slot in slots:
            slot.interrupt()
        for thread in threads:
            thread.join(PATIENCE)
        raise
    finally:
        closed.set()
        for slot in slots:
            slot.kill()
        for thread in threads:
            thread.join()


def _next_ended(ended: "SimpleQueue[Path | Exception]") -> Path:
    """Wait for a cell to end, with timeouts: on Windows, Ctrl-C can't interrupt an endless wait.

    Raises:
        Exception: the exception of a slot's thread.
    """
    while True:
        with suppress(Empty):
            one = ended.get(timeout=1.0)
            if isinstance(one, Exception):
                raise one
            return one


class _Slot:
    """A place for a worker process, which trains one cell after another."""

    def __init__(self, variables: Mapping[str, str], log: Path) -> None:
        self._variables, self._log = variables, log
        self._process: subprocess.Popen[bytes] | None = None

    def work(
        self, waiting: "deque[Path]", ended: "SimpleQueue[Path | Exception]", closed: Event
    ) -> None:
        """Train waiting cells until none is left. Runs in a separate thread."""
        try:
            with suppress(IndexError):  # no cell is waiting
                while not closed.is_set():
                    cell = waiting.popleft()
                    self._train(cell, closed)
                    ended.put(cell)
        except Exception as error:
            ended.put(error)
        finally:
            self.kill()
            self._end()

    def _train(self, cell: Path, closed: Event) -> None:
        reason = ""
        for _ in range(ATTEMPTS):
            if self._process is None:
                self._process = self._start()
            if closed.is_set():  # perhaps while the process was starting
                self.kill()
            if self._request(self._process, cell):
                return
            reason = self._end()
            if closed.is_set():
                return
        give_up(cell, f"{reason}, {ATTEMPTS} times")

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "regard.comparison.worker", str(os.getpid())]
        with self._log.open("ab") as messages:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                env={**os.environ, **self._variables},
                start_new_session=True,  # Ctrl-C reaches the scheduler alone
                creationflags=new_group_flag(),
            )

    @staticmethod
    def _request(process: "subprocess.Popen[bytes]", cell: Path) -> bool:
        """Hand a cell to the worker and wait until it has ended; False if the worker dies."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # a broken pipe, EINVAL on Windows: its reply will be missing
            process.stdin.write(f"{json.dumps(str(cell))}\n".encode())
            process.stdin.flush()
        return bool(process.stdout.readline())

    def interrupt(self) -> None:
        """Interrupt the worker, which saves its state and exits."""
        if process := self._process:
            interrupt(process)

    def kill(self) -> None:
        """Kill the worker, which loses at most the steps since its last checkpoint."""
        if process := self._process:
            process.kill()

    def _end(self) -> str:
        """Wait for the worker to exit, and return a description of its exit status."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with suppress(OSError), process:  # closes its pipes, which may be broken
            process.wait()
        return _describe_end(process.returncode)


def _describe_end(code: int) -> str:
    if code < 0:
        return f"its process was ended by {signal_name(-code)}"
    return f"its process exited with code {code}"


def _share_of_gpus(slot: int) -> dict[str, str]:
    """Return environment variables that give a slot one GPU, round-robin; empty without GPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        visible = ",".join(str(i) for i in range(len(list(Path("/dev").glob("nvidia[0-9]*")))))
    devices = [device for device in visible.split(",") if device]
    return {"CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]} if devices else {}
