"""Precision by measured speed; names of processors; peak memory; freed memory is reused."""

import ctypes
import platform
import subprocess
import sys
from itertools import accumulate, chain, cycle
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from platforms import imitate
from regard import device
from regard.device import ExecutionEnvironment, bfloat16_gain, freed_memory_reused, peak_memory_mb

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


@pytest.mark.parametrize(("gain", "dtype"), [(8.0, torch.bfloat16), (0.03, torch.float32)])
def test_auto_is_the_faster_precision(
    gain: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "bfloat16_gain", lambda _: gain)
    assert ExecutionEnvironment.choose("cpu", "auto").dtype == dtype


@pytest.mark.filterwarnings("always:--precision")
def test_an_emulated_precision_is_used_when_requested_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "bfloat16_gain", lambda _: 0.05)
    with pytest.warns(UserWarning, match=r"^--precision bfloat16: .* 20 times as long"):
        chosen = ExecutionEnvironment.choose("cpu", "bfloat16")
    assert chosen.dtype == torch.bfloat16


@pytest.mark.filterwarnings("error:--precision")
def test_a_precision_in_hardware_is_used_without_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "bfloat16_gain", lambda _: 2.0)
    assert ExecutionEnvironment.choose("cpu", "bfloat16").dtype == torch.bfloat16


def test_the_gain_is_measured_once_and_leaves_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    bfloat16_gain.cache_clear()
    threads = torch.get_num_threads()
    gain = bfloat16_gain(torch.device("cpu"))
    assert 0 < gain < float("inf")
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(device, "_gain", lambda *_: pytest.fail("measured again"))
    assert bfloat16_gain(torch.device("cpu")) == gain


def test_without_proc_a_processor_has_the_name_that_the_system_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "open", fail)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert device.processor_name(torch.device("cpu")) == "arm"


def test_a_gain_is_found_after_disturbed_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first four products in bfloat16 take as long as those in float32, the later a quarter."""
    times = chain(chain.from_iterable([(0.004, 0.004)] * 4), cycle((0.004, 0.001)))
    clock = accumulate(chain.from_iterable((0.0, one) for one in times))
    monkeypatch.setattr(device, "_seconds", lambda _: next(clock))
    assert device._gain(torch.device("cpu"), 2) == pytest.approx(4)
