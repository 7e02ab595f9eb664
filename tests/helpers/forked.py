"""Start processes, forked from this one, which has imported all that a training imports.

Each line of the input is a list as JSON: a folder, a file for all that is printed, a number of
processes, and the arguments of python: a script or a module, and its own. The number is that of the
processes of one training, which a launcher starts as torchrun does, or 0 for a command that starts
by itself. The answers are the id of the launcher or the command and, when it has ended, its exit
code. One runs at a time. `launched.py` writes the lines.
"""

import gc
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence

import torch._dynamo  # noqa: F401  DDP and FSDP import it when they are first called
from torch._C._distributed_c10d import TCPStore

import regard.cli.train  # what a training imports
import regard.training.loop
import regard.training.sharded  # noqa: F401
from regard.comparison.worker import end_with

HOST = "127.0.0.1"
PATIENCE = 30
"""Seconds that the others have to end when one fails, as with torchrun."""


def main() -> None:
    """Start what the input asks for."""
    end_with(os.getppid())
    server = os.getpid()
    gc.freeze()  # collections would read, and thus copy, what all processes share
    for line in sys.stdin:
        folder, log, size, arguments = json.loads(line)
        process = os.fork()
        if process == 0:
            end_with(server)
            os.chdir(folder)
            redirect(log)
            if size:
                launch(size, arguments)
            else:
                run(arguments)
            return
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def redirect(log: str) -> None:
    """Read nothing, and write all that is printed to a file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for number, opened in enumerate((nothing, file, file)):
        os.dup2(opened, number)


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
    os._exit(failed)  # nothing of Regard ends here


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


def run(arguments: Sequence[str]) -> None:
    """Run a script, or a module after `-m`, as python does."""
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


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


if __name__ == "__main__":
    main()
