"""A worker process, also where Linux's way to end with the parent is missing."""

import ctypes
import os
import subprocess
import sys

import pytest

from platforms import imitate
from regard.comparison import worker

PRINT_CELLS = """
import os, sys
from regard.comparison import worker
worker.train_cell = lambda path: print(ascii(str(path)), file=sys.stderr)
sys.argv = ["worker", str(os.getppid())]
worker.main()
"""


@pytest.mark.slow
def test_paths_are_utf_8_whatever_the_encoding_of_the_input() -> None:
    """On Windows, Python reads a pipe in the encoding of the system."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT_CELLS],
        input="/tmp/Käse\n".encode(),
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=False,
    )
    assert done.stderr.decode().splitlines() == [r"'/tmp/K\xe4se'"]
    assert done.stdout.decode() == "/tmp/Käse\n"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_without_prctl_a_worker_ends_with_its_input(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitate(platform, worker, monkeypatch)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: pytest.fail("prctl is Linux's"))
    worker._end_with(parent=0)
