"""Processes forked from one that has imported all, which takes milliseconds instead of seconds.

Several train one model as torchrun starts them.
"""

import atexit
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import TCPStore

IMPORTED = ("regard.cli.train", "regard.training.loop", "regard.training.sharded")
"""What a training imports."""
HOST = "127.0.0.1"
PATIENCE = 30
"""Seconds that the others have to end when one fails, as with torchrun."""


class Forked:
    """A forked process that calls a function, with the interface of `subprocess.Popen`."""

    def __init__(self, log: Path, function: Callable[..., None], *given: Any) -> None:
        forks = get_context("forkserver")  # which Windows lacks
        forks.set_forkserver_preload([*IMPORTED])
        place = Path.cwd(), log, os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = forks.Process(target=_call, args=(*place, function, *given))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return code

    def kill(self) -> None:
        self._process.kill()


def start(arguments: Sequence[str], log: Path) -> Forked:
    """Start what python does with these arguments: a script or a module, and its own."""
    return Forked(log, run, arguments)


def start_several(size: int, arguments: Sequence[str], log: Path) -> Forked:
    """Start a launcher, and processes that run the same."""
    return Forked(log, launch, size, arguments)


def _call(
    folder: Path, log: Path, variables: dict[str, str], function: Callable[..., None], *given: Any
) -> None:
    os.chdir(folder)
    os.environ.update(variables)
    with log.open("wb") as file:  # a pipe would stay open in processes that outlive it
        for output in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), output.fileno())
    function(*given)


def run(arguments: Sequence[str]) -> None:
    """Run a script, or a module after `-m`, as python does."""
    first, *rest = arguments
    try:
        if first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # which a forked process skips


def launch(size: int, arguments: Sequence[str]) -> None:
    """Fork the processes, keep their store, and end them all when one fails."""
    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    started: list[int] = []
    for rank in range(size):  # before there is a thread, which a fork would lose
        process = os.fork()
        if process == 0:
            listener.close()
            join(rank, size, port)
            return run(arguments)
        started.append(process)
    store = TCPStore(
        HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    failed = wait_for(started)
    del store
    sys.exit(failed)


def join(rank: int, size: int, port: int) -> None:
    """Set the variables of torchrun."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def wait_for(started: list[int]) -> bool:
    """Wait for all processes, and return whether one failed; then the others are ended."""
    failed = False
    while started:
        process, status = os.wait()
        started.remove(process)
        if status:
            code = os.waitstatus_to_exitcode(status)
            print(f"exitcode: {code} (pid: {process})", file=sys.stderr, flush=True)
            if not failed:
                send(signal.SIGTERM, started)
                signal.signal(signal.SIGALRM, lambda *_: send(signal.SIGKILL, started))
                signal.alarm(PATIENCE)
            failed = True
    return failed


def send(number: int, processes: Sequence[int]) -> None:
    """Send a signal to processes."""
    for process in processes:
        os.kill(process, number)
