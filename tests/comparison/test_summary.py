"""What a folder holds is shown fast, and from the files alone."""

import sys
from collections.abc import Sequence
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
def test_a_thousand_cells_take_at_most_five_times_as_long_as_ten(tmp_path: Path) -> None:
    """Three seconds on a fast machine, most of them to start."""
    ten = processor_seconds(tmp_path / "ten", kinds=2, seeds=5, rates=(1e-4,))
    thousand = processor_seconds(tmp_path / "thousand", kinds=50, seeds=5, rates=RATES)
    assert thousand <= 5 * ten
    assert (tmp_path / "thousand/report.html").stat().st_size <= 3e6


RATES = (1e-4, 1e-3, 1e-2, 1e-1)


def processor_seconds(out: Path, *, kinds: int, seeds: int, rates: Sequence[float]) -> float:
    """Show the cells by the command, whose processes may share the machine with others."""
    outcomes = {
        (f"kind-{kind}", lr, seed): finished(kind / 100 + seed / 1000, seed / 100)
        for kind in range(kinds)
        for lr in rates
        for seed in range(seeds)
    }
    comparison = made_up(outcomes, out=out)
    with_metrics(comparison, steps=50)
    write_cells(comparison)
    before = getrusage(RUSAGE_CHILDREN)
    done = run(
        [sys.executable, "-m", "regard", "compare", str(out)], capture_output=True, check=True
    )
    after = getrusage(RUSAGE_CHILDREN)
    assert f"{len(outcomes)} of {len(outcomes)} have ended" in done.stdout.decode()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
