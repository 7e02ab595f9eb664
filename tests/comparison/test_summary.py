"""What a folder holds is shown fast, and from the files alone."""

import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import run

import pytest

from regard.comparison.summary import summarize
from tiny_comparisons import finished, made_up, with_metrics, write_cells


def test_a_summary_is_read_from_the_cells(tmp_path: Path) -> None:
    outcomes = {(kind, 0.01, 0): finished(0.5, 0.4) for kind in ("softmax", "elu")}
    comparison = made_up(outcomes, out=tmp_path)
    write_cells(comparison)
    assert summarize(tmp_path).table() == comparison.table()
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_a_thousand_cells_take_three_seconds(tmp_path: Path) -> None:
    """Processor time of the whole command, as other processes may share the machine."""
    outcomes = {
        (f"kind-{kind}", lr, seed): finished(kind / 100 + seed / 1000, seed / 100)
        for kind in range(50)
        for lr in (1e-4, 1e-3, 1e-2, 1e-1)
        for seed in range(5)
    }
    comparison = made_up(outcomes, out=tmp_path)
    with_metrics(comparison, steps=50)
    write_cells(comparison)
    before = getrusage(RUSAGE_CHILDREN)
    done = run(
        [sys.executable, "-m", "regard", "compare", str(tmp_path)], capture_output=True, check=True
    )
    after = getrusage(RUSAGE_CHILDREN)
    assert b"1000 of 1000 have ended" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime <= 3
    assert (tmp_path / "report.html").stat().st_size <= 3e6
