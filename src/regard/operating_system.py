"""Processes: those of torchrun, and where Linux, macOS and Windows differ."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from math import ceil
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")
"""Where Linux states the limits of a container."""


def process_cpu_count() -> int:
    """Return the number of cores that this process may use, by the limit of its container too."""
    affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, _cpu_limit() or cores)


def _cpu_limit() -> int | None:
    """Return the CPU limit of a container, rounded up; None without one."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):  # cgroups 2, 1
        with suppress(OSError, ValueError):  # no such file; "max": no limit
            text = " ".join((CONTROL_GROUP / name).read_text("ascii") for name in names)
            quota, period = map(int, text.split())
            return ceil(quota / period) if quota > 0 else None
    return None


def is_launched() -> bool:
    """Return whether the variables of torchrun name several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


# Whether a process runs


def is_running(pid: int) -> bool:
    """Return whether a process runs; on Linux, a zombie does not."""
    try:
        return _look_up(pid)
    except PermissionError:  # it runs for another user
        return True
    except OSError:
        return False


def _look_up(pid: int) -> bool:
    """Return whether a process that exists, or has left a zombie, runs.

    Raises:
        OSError: there is no such process, or it is another user's.
    """
    if sys.platform == "win32":  # where os.kill(pid, 0) sends Ctrl-C
        import _winapi

        process = _winapi.OpenProcess(_winapi.SYNCHRONIZE, False, pid)
        try:
            return _winapi.WaitForSingleObject(process, 0) == _winapi.WAIT_TIMEOUT
        finally:
            _winapi.CloseHandle(process)
    if sys.platform == "linux" and Path("/proc/self").exists():
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    os.kill(pid, 0)
    return True


# Signals


def signal_name(number: int) -> str:
    """Return a signal's name; Python has none for most real-time signals."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def new_group_flag() -> int:
    """Return the `creationflags` of a process that Ctrl-C in this terminal does not reach.

    Only Windows has such flags; elsewhere, `start_new_session` does the same.
    """
    if sys.platform == "win32":
        return subprocess.CREATE_NEW_PROCESS_GROUP
    return 0


def interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt a process that was started with `new_group_flag`, as Ctrl-C would.

    On Windows by Ctrl-Break: a new group ignores Ctrl-C.
    """
    if sys.platform == "win32":
        # It has ended, or there is no console: python/cpython#87128.
        with suppress(OSError, SystemError):
            process.send_signal(signal.CTRL_BREAK_EVENT)
    else:
        process.send_signal(signal.SIGINT)


def accept_interrupts() -> None:
    """Handle Ctrl-Break, which `interrupt` sends on Windows, as Ctrl-C."""
    if sys.platform == "win32":
        signal.signal(signal.SIGBREAK, lambda *_: signal.raise_signal(signal.SIGINT))
