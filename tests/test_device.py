"""Precisions are chosen by measured speed; peak memory is the process's own."""

import platform
import subprocess
import sys

import pytest
import torch

from regard import device
from regard.device import ExecutionEnvironment, bfloat16_gain, peak_memory_mb

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
        environment = ExecutionEnvironment.choose("cpu", "bfloat16")
    assert environment.dtype == torch.bfloat16


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
