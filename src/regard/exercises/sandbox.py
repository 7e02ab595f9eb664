"""Processes for students' code: one per job, with limits of time and memory.

On Linux, they are forked from a server that has imported torch; elsewhere each imports torch.
Values returned by a student's code are not unpickled. This isn't a security boundary: the code runs
with the rights of the user.
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from regard.errors import RegardError
from regard.exercises.worker import ANSWERS, READY, RETURNED, UNREADABLE, Answers, Job, serve_job
from regard.operating_system import signal_name

MEMORY = 2 * 2**30
"""Memory limit of a job, in bytes."""
SECONDS = 5
"""Limit of a job's processor time, in seconds; its wall-clock limit is four times as long."""
_TRIES = 100
_START = 300.0
"""Limit of the start of a process, which imports torch, in seconds, on a busy machine."""


class Sandbox:
    """Run jobs one after another, each in a separate process."""

    def __init__(self, *, seconds: int = SECONDS, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        # Libraries of macOS may crash in a fork, so multiprocessing spawns there too.
        method = "forkserver" if sys.platform == "linux" else "spawn"
        self._context: Any = get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload(["__main__", "regard.exercises.worker"])

    def run(self, job: Job) -> Answers:
        """Return the answers of a job, or the reason for missing ones."""
        receiver, sender = self._context.Pipe(duplex=False)
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            arguments = (sender, msgspec.json.encode(job), folder, self.seconds, self.memory)
            process = self._start(arguments)
            sender.close()
            try:
                if self._is_ready(receiver, process) and not self._ends(receiver, process):
                    return Answers(reason=f"takes longer than {4 * self.seconds} s")
            finally:
                _kill(process)
                receiver.close()
            if (answers := Path(folder) / ANSWERS).is_file():
                return _read(answers)
            return Answers(reason=self._ended(process))

    def _start(self, arguments: tuple[Any, ...]) -> Any:
        """Start a process, with another server if a student's code has killed the last one."""
        for _ in range(_TRIES):
            process = self._context.Process(target=serve_job, args=arguments, daemon=True)
            try:
                process.start()
            except (ConnectionError, EOFError):
                time.sleep(0.1)  # the dying server still counts as alive
            else:
                return process
        raise RegardError("processes for the students' code can't be started; repeat the command")

    def _is_ready(self, receiver: Connection, process: Any) -> bool:
        """Wait until a process reports that it begins; False if it has ended before."""
        if not wait([receiver, process.sentinel], _START):
            raise RegardError(f"a process for the students' code didn't start in {_START:g} s")
        with suppress(EOFError, OSError):
            return receiver.poll() and receiver.recv_bytes() == READY
        return False

    def _ends(self, receiver: Connection, process: Any) -> bool:
        """Wait until a process reports its end, or ends; False if neither happens in time.

        The report isn't read, because the student's code may write to it. The end of the process
        may go unnoticed, because processes that it has started keep the sentinel open.
        """
        ends = bool(wait([receiver, process.sentinel], 4 * self.seconds))
        process.join(self.seconds if ends else 0)
        return ends

    def _ended(self, process: Any) -> str:
        """Return a description of the end of a process without a result."""
        code = process.exitcode
        if code is None or code >= 0:
            return f"exits with code {code} before it returns"
        name = signal_name(-code)
        if name == "SIGXCPU":
            return f"runs longer than {self.seconds} s"
        return f"crashes with {name}"


def _read(answers: Path) -> Answers:
    try:
        if answers.stat().st_size > RETURNED:
            return Answers(reason=UNREADABLE)
        return msgspec.convert(json.loads(answers.read_bytes()), Answers)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return Answers(reason=UNREADABLE)


def _kill(process: Any) -> None:
    """Kill the process and its process group."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.exitcode is None:
        process.kill()
    process.join()
