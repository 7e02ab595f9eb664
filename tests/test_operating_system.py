"""Processes on Linux, and the paths of macOS and Windows, chosen by the platform's name."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from platforms import imitate
from regard import operating_system
from regard.operating_system import (
    accept_interrupts,
    interrupt,
    is_running,
    new_group_flag,
    process_cpu_count,
    signal_name,
)

STAND_IN = signal.SIGTERM
"""Stands for Ctrl-Break, which only Windows has."""


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names that Python has on Windows; `os.kill` must not be called."""
    imitate("win32", operating_system, monkeypatch)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("os.kill ends processes on Windows"))
    monkeypatch.setattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200, raising=False)
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    monkeypatch.setattr(signal, "SIGBREAK", STAND_IN, raising=False)


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of signals, restored at the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, STAND_IN)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def an_ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


# Cores


def test_without_affinity_all_cores_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_cpu_count() >= 1
    monkeypatch.setattr(operating_system, "CONTROL_GROUP", tmp_path)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert process_cpu_count() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert process_cpu_count() == 1


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, 7),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 7),
    ],
)
def test_the_limit_of_a_container_counts(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(operating_system, "CONTROL_GROUP", tmp_path)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert process_cpu_count() == cores


# Whether a process runs


@pytest.mark.skipif(sys.platform == "win32", reason="imitates a system with signals")
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_process_runs_until_it_has_ended(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imitate(platform, operating_system, monkeypatch)
    assert is_running(os.getpid())
    assert not is_running(an_ended_process())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_zombie_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not is_running(process.pid)


def test_a_process_of_another_user_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    imitate("darwin", operating_system, monkeypatch)
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    assert is_running(1)


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize(("waited", "runs"), [(258, True), (0, False)])
def test_windows_waits_for_the_process_and_sends_no_signal(
    waited: int, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    api = SimpleNamespace(
        SYNCHRONIZE=0x100000,
        WAIT_TIMEOUT=258,
        OpenProcess=lambda access, inherit, pid: f"{access:#x} {inherit} {pid}",
        WaitForSingleObject=lambda _, milliseconds: waited if milliseconds == 0 else -1,
        CloseHandle=closed.append,
    )
    monkeypatch.setitem(sys.modules, "_winapi", api)
    assert is_running(12) is runs
    assert closed == ["0x100000 False 12"]


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize(("error", "runs"), [(PermissionError(), True), (OSError(), False)])
def test_windows_opens_no_process_that_is_missing_or_of_another_user(
    error: OSError, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = SimpleNamespace(SYNCHRONIZE=0x100000, OpenProcess=Mock(side_effect=error))
    monkeypatch.setitem(sys.modules, "_winapi", api)
    assert is_running(12) is runs


# Signals


def test_a_signal_without_a_name_has_its_number() -> None:
    assert signal_name(signal.SIGTERM) == "SIGTERM"
    assert signal_name(1000) == "signal 1000"


class Recorded:
    """A process that records what is sent to it, or refuses it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.sent: list[int] = []
        self._error = error

    def send_signal(self, number: int) -> None:
        """Record a signal."""
        self.sent.append(number)
        if self._error:
            raise self._error


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_process_is_interrupted_by_ctrl_c(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imitate(platform, operating_system, monkeypatch)
    assert new_group_flag() == 0
    process: Any = Recorded()
    interrupt(process)
    assert process.sent == [signal.SIGINT]


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("error", [None, OSError(87, "invalid"), SystemError("no console")])
def test_windows_interrupts_a_group_by_ctrl_break(error: BaseException | None) -> None:
    assert new_group_flag() == 0x200
    process: Any = Recorded(error)
    interrupt(process)
    assert process.sent == [1]


@pytest.mark.usefixtures("windows", "handlers")
def test_ctrl_break_is_handled_as_ctrl_c() -> None:
    accept_interrupts()
    noted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    signal.raise_signal(STAND_IN)
    assert noted == [signal.SIGINT], "by the handler of that moment, such as that of a training"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(STAND_IN)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_without_ctrl_break_no_handler_changes(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(platform, operating_system, monkeypatch)
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("a handler changes"))
    accept_interrupts()
    monkeypatch.undo()
