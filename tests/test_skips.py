"""A run prints why tests were skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from skips import skipped_lines

SKIPPING = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_many(n):
    pytest.skip("no GPU")

@pytest.mark.skip(reason="too slow")
def test_one():
    pass

def test_that_runs():
    pass
"""


def skipped(reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid="test_x.py::test_x",
        location=("test_x.py", 1, "test_x"),
        keywords={},
        outcome="skipped",
        longrepr=("test_x.py", 1, reason),
        when="setup",
    )


def test_each_reason_has_one_line() -> None:
    reasons = ["Skipped: no GPU", "unconditional skip", "Skipped: no GPU"]
    assert skipped_lines(map(skipped, reasons)) == [
        "2 skipped: no GPU",
        "1 skipped: unconditional skip",
    ]
    assert skipped_lines([]) == []


@pytest.mark.slow
def test_a_run_on_two_processes_prints_them_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-p", "conftest", "-p", "no:cacheprovider"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3 skipped: no GPU\n1 skipped: too slow\n" in found.stdout
