"""Processes forked from one that has imported all that a training imports (`forked.py`).

A fork takes milliseconds where a start takes seconds. What runs in it, and its end, are the same.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from select import select
from typing import IO, ClassVar, TypeAlias

HELPERS = Path(__file__).parent
QUIET = Path(os.devnull)


def environment() -> dict[str, str]:
    """The variables of processes that train with one thread, and find the helpers."""
    paths = os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}


@cache
def server() -> tuple[IO[bytes], IO[bytes]]:
    """The input and the output of the process that forks the others."""
    started = subprocess.Popen(
        [sys.executable, str(HELPERS / "forked.py")],
        bufsize=0,  # `select` knows nothing of what is buffered
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(started.wait)
    atexit.register(started.kill)  # before: the last one registered is called first
    atexit.register(Forked.end_newest)
    assert started.stdin is not None
    assert started.stdout is not None
    return started.stdin, started.stdout


class Forked:
    """A launcher with the processes of a training, or a command, as `subprocess` has it."""

    _newest: ClassVar["Forked | None"] = None

    def __init__(self, size: int, arguments: Sequence[str], log: Path = QUIET) -> None:
        """Start a training of some processes, or a command if `size` is 0, in this folder.

        `arguments` are python's: a script or a module, and its own.
        """
        Forked.end_newest()
        asked, self._answers = server()
        request = [str(Path.cwd()), str(log.absolute()), size, list(arguments)]
        asked.write(json.dumps(request).encode() + b"\n")
        self.pid = self._answer()
        self.returncode: int | None = None
        Forked._newest = self

    @staticmethod
    def end_newest() -> None:
        """Kill the newest process, and those that it has started, if a test has failed and left it.

        A process that ends meanwhile has no id any more.
        """
        if (left := Forked._newest) and left.poll() is None:
            with suppress(FileNotFoundError, ProcessLookupError):
                kill_all(left)
            left.wait()

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: it hasn't ended after that many seconds.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def kill(self) -> None:
        """Kill the process, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select([self._answers], [], [], timeout)[0]:
            self.returncode = self._answer()
        return self.returncode

    def _answer(self) -> int:
        line = self._answers.readline()
        assert line, "forked.py has ended"
        return int(line)


Process: TypeAlias = "subprocess.Popen[bytes] | Forked"


def workers(launcher: int) -> list[int]:
    """The processes that a launcher has started."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(child) for child in children]


def kill_all(process: Process) -> None:
    """Kill a launcher and its processes; the launcher first, which would reap them."""
    for victim in (process.pid, *workers(process.pid)):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(victim, signal.SIGKILL)
