"""Limits of the processes for students' code, on the systems that have them."""

import sys
import time
from types import SimpleNamespace

import pytest

from platforms import imitate
from regard.exercises import worker

LIMITS = ("RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_CORE")


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """The limits that are set, by name; the process of the test stays as it is."""
    found: dict[str, tuple[int, int]] = {}
    resource = SimpleNamespace(setrlimit=found.__setitem__, **{name: name for name in LIMITS})
    monkeypatch.setitem(sys.modules, "resource", resource)
    files = SimpleNamespace(
        devnull="", O_RDWR=0, open=lambda *_: 0, dup2=lambda *_: 0, setsid=lambda: None
    )
    monkeypatch.setattr(worker, "os", files)
    return found


def test_linux_limits_time_memory_and_files(
    limits: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate("linux", worker, monkeypatch)
    monkeypatch.setattr(time, "process_time", lambda: 0.02)  # since the fork
    worker._restrict(seconds=5, memory=100)
    assert limits.keys() == set(LIMITS)
    assert limits["RLIMIT_CPU"] == (5, 6)
    assert limits["RLIMIT_DATA"] == (100, 100)


def test_macos_limits_no_memory_and_adds_the_time_of_the_import(
    limits: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate("darwin", worker, monkeypatch)
    monkeypatch.setattr(time, "process_time", lambda: 2.9)
    worker._restrict(seconds=5, memory=100)
    assert limits.keys() == set(LIMITS) - {"RLIMIT_DATA"}
    assert limits["RLIMIT_CPU"] == (8, 9)


def test_windows_sets_no_limits(
    limits: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate("win32", worker, monkeypatch)
    monkeypatch.setattr(worker, "os", None)
    worker._restrict(seconds=5, memory=100)
    assert limits == {}
