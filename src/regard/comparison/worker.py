"""A worker process of the local executor: `python -m regard.comparison.worker`.

It reads paths of cells from standard input, each a line of JSON, trains them, and writes the line
of each that has ended. It exits with its parent.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import warnings
from pathlib import Path

from regard.operating_system import accept_interrupts

PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that a process gets when its parent ends (Linux)."""


def main() -> None:
    """Train the cells listed in the input."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")  # Windows has another encoding for sys.stdin
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not be read as a reply
    end_with(int(sys.argv[1]))
    accept_interrupts()
    warnings.showwarning = _show_warning

    # Takes seconds, so after the signal is set.
    from regard.training.loop import InterruptedTraining

    try:
        for line in requests:
            train_cell(Path(json.loads(line)))
            print(line, end="", file=replies, flush=True)
    except (InterruptedTraining, KeyboardInterrupt):
        sys.exit(130)
    finally:
        gc.freeze()  # at exit, collections of torch's objects would take 0.4 s


def train_cell(path: Path) -> None:
    """Train a cell; print a message if a newer attempt has claimed it."""
    from regard.comparison.cell import run_cell
    from regard.runs.claim import StaleClaimError

    try:
        run_cell(path)
    except StaleClaimError as error:
        print(error, file=sys.stderr, flush=True)


def end_with(parent: int) -> None:
    """Exit when the parent does (Linux); on other systems, the end of the input has to suffice."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the call
        sys.exit(1)


def _show_warning(message: Warning | str, *_args: object, **_kwargs: object) -> None:
    print(f"warning: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
