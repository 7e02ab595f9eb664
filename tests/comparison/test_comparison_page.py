"""The page is one safe file of bounded size, and says what the table says."""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from subprocess import run

import pytest

from regard.comparison.page import page, page_data, save_page, summarize
from regard.comparison.table import Comparison
from tiny_comparisons import DIVERGED, KIND, LR, finished, made_up, with_metrics, write_cells

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    outcomes = {
        (kind, lr, seed): finished(score + seed / 100, score)
        for kind, score in (("softmax", 0.9), (HOSTILE, 0.5))
        for lr in (1e-4, 1e-3, 1e-2)
        for seed in range(2)
    }
    outcomes |= {("elu", 1e-3, 0): DIVERGED}
    return made_up(outcomes, out=tmp_path)


def test_nothing_on_the_page_ends_its_script(comparison: Comparison) -> None:
    text = page(comparison)
    assert HOSTILE not in text
    assert text.count("</script>") == 2
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert json.loads(data) == page_data(comparison)


def test_the_page_asks_for_nothing(comparison: Comparison) -> None:
    text = page(comparison)
    assert "default-src 'none'" in text
    assert not re.search(r'(src|href)="(?!data:)', text)


def test_curves_are_those_of_the_table(comparison: Comparison) -> None:
    data = page_data(comparison)
    assert [row["name"] for row in data["rows"]] == ["softmax", HOSTILE, "elu"]
    curve = data["rows"][0]["curves"][LR]
    assert curve["values"] == ["0.0001", "0.001", "0.01"]
    assert curve["means"] == [0.905] * 3
    assert (curve["chosen"], curve["edge"]) == ("0.001", False)
    assert data["rows"][2]["curves"][LR]["means"] == [None]
    assert data["failures"] == [
        f"{KIND}=elu, {LR}=0.001, seed 0: diverged at step 3: step 3: loss nan"
    ]


def test_learning_curves_are_means_and_short(tmp_path: Path) -> None:
    outcomes = {("softmax", 1e-3, seed): finished(0.5, 0.5) for seed in range(2)}
    comparison = made_up(outcomes | {("softmax", 1e-3, 2): None}, out=tmp_path)  # one still trains
    with_metrics(comparison, steps=500)
    learning = page_data(comparison)["rows"][0]["learning"]
    assert (learning["steps"][0], learning["steps"][-1]) == (1, 500)
    assert len(learning["steps"]) == 40
    assert learning["losses"][0] == 1.5  # the losses of step s are (1 + seed) / s


def test_a_page_of_a_thousand_cells_is_small(tmp_path: Path) -> None:
    """The bound of the promise: 3 MB."""
    outcomes = {
        (f"kind-{kind}", lr, 0): finished(0.123456789, 0.987654321)
        for kind in range(250)
        for lr in (1e-4, 1e-3, 1e-2, 1e-1)
    }
    comparison = made_up(outcomes, out=tmp_path)
    with_metrics(comparison, steps=100)
    assert save_page(comparison).stat().st_size <= 3e6


# What a folder holds is shown fast, and from the files alone


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


def test_costs_are_better_if_lower(comparison: Comparison) -> None:
    """Of tokens per second, the slowest row was Pareto-optimal."""
    assert "tokens_per_second" not in page_data(comparison)["costs"]
