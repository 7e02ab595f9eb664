"""Limits of the processes for students' code, on the systems that have them."""

import sys
import time
from types import SimpleNamespace

import pytest

from platforms import imitate
from regard.exercises import worker

LIMITS = ("RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_CORE")


@pytest.mark.parametrize(
    ("platform", "of_import", "names", "seconds"),
    [
        ("linux", 0.02, LIMITS, (5, 6)),
        ("darwin", 2.9, (*LIMITS[:1], *LIMITS[2:]), (8, 9)),
        ("win32", 0.02, (), None),
    ],
    ids=["linux, which forks", "macos, which imports torch and limits no memory", "windows"],
)
def test_a_system_sets_the_limits_that_it_has(
    platform: str,
    of_import: float,
    names: tuple[str, ...],
    seconds: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process of the test stays as it is."""
    found: dict[str, tuple[int, int]] = {}
    resource = SimpleNamespace(
        setrlimit=found.__setitem__,
        getrlimit=lambda name: (7, 7 if name == "RLIMIT_FSIZE" else -1),
        RLIM_INFINITY=-1,
        **{name: name for name in LIMITS},
    )
    monkeypatch.setitem(sys.modules, "resource", resource)
    files = SimpleNamespace(
        devnull="", O_RDWR=0, open=lambda *_: 0, dup2=lambda *_: 0, setsid=lambda: None
    )
    monkeypatch.setattr(worker, "os", None if platform == "win32" else files)
    imitate(platform, worker, monkeypatch)
    monkeypatch.setattr(time, "process_time", lambda: of_import)
    worker._restrict(seconds=5, memory=100)
    assert found.keys() == set(names)
    assert found.get("RLIMIT_CPU") == seconds
    assert found.get("RLIMIT_DATA") in (None, (100, 100))
    assert found.get("RLIMIT_FSIZE") in (None, (7, 7))  # a hard limit below the one asked for
