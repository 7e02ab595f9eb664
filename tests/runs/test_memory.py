"""Peak memory is that of the process itself, and freed memory is reused on request."""

import platform
import subprocess
import sys

import pytest

from regard.runs.memory import peak_memory_mb

PRINT = "from regard.runs.memory import peak_memory_mb; print(peak_memory_mb())"
REUSE = """
import resource
from regard.runs.memory import freed_memory_reused

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
