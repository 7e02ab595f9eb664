"""Peak memory is that of the process itself."""

import subprocess
import sys

from regard.runs.memory import peak_memory_mb

PRINT = "from regard.runs.memory import peak_memory_mb; print(peak_memory_mb())"


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
