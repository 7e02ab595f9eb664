"""Peak memory is the process's own; freed memory is reused."""

import ctypes
import platform
import subprocess
import sys
from math import isnan
from types import SimpleNamespace

import pytest
import torch

from platforms import imitate
from regard import device
from regard.device import freed_memory_reused, peak_memory_mb

PRINT = "from regard.device import peak_memory_mb; print(peak_memory_mb())"
REUSE = """
import resource
from regard.device import freed_memory_reused

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(b"x") * (20 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with freed_memory_reused():
    print(faults(), faults())
print(faults())
"""
"""Page faults of 20 MB, for the first time, again, and after the end."""


def test_memory_once_used_stays_the_peak() -> None:
    before = peak_memory_mb()
    filled = bytearray(b"x") * (200 << 20)
    del filled
    assert peak_memory_mb() >= max(before, 200)


def test_a_child_does_not_report_its_parents_peak() -> None:
    filled = bytearray(b"x") * (400 << 20)
    child = subprocess.run(
        [sys.executable, "-c", PRINT], capture_output=True, text=True, check=True
    )
    assert float(child.stdout) < 400 <= peak_memory_mb()
    assert filled


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="requires glibc")
def test_freed_memory_is_reused_and_returned_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", REUSE], capture_output=True, text=True, check=True)
    first, again, after = map(int, done.stdout.split())
    assert again < first / 2 < after


@pytest.mark.parametrize(("platform", "unit"), [("darwin", 1), ("freebsd14", 2**10)])
def test_without_proc_the_peak_is_that_of_getrusage(
    platform: str, unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(ru_maxrss=3 * 2**20 // unit)
    resource = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: usage)
    monkeypatch.setitem(sys.modules, "resource", resource)
    imitate(platform, device, monkeypatch)
    assert peak_memory_mb() == 3


def test_windows_reports_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)  # importing it fails
    imitate("win32", device, monkeypatch)
    assert isnan(peak_memory_mb())


@pytest.mark.parametrize("platform", ["darwin", "win32", "linux"])
def test_without_glibc_memory_is_left_alone(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imitate(platform, device, monkeypatch)
    loaded: list[object] = []

    def load(name: None) -> object:
        loaded.append(name)
        return object()  # as musl, without mallopt

    monkeypatch.setattr(ctypes, "CDLL", load)
    with freed_memory_reused():
        assert loaded == ([None] if platform == "linux" else [])


def test_code_is_cached_by_instruction_set() -> None:
    """Otherwise code for others was taken from the cache, and was wrong or crashed."""
    config = torch.compiler.config
    with config.patch(cache_key_tag="mine"):  # type: ignore[attr-defined]
        for _ in range(2):
            assert device.compiled(torch.neg, backend="eager")(torch.ones(1)) == -1
            assert config.cache_key_tag == f"mine {torch.backends.cpu.get_cpu_capability()}"
