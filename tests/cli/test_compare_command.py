"""regard compare: from a command to a table; bad input is one line."""

import json
import re
from pathlib import Path

import pytest

from tiny import Command, refused, succeeded
from tiny_comparisons import KIND, TINY, tiny_grid

pytestmark = pytest.mark.usefixtures("without_workers")

AXES = (
    *("compare", "mqar", "--over", "model.attention.kind=softmax,linformer"),
    *("--tune", "training.lr=1e-3,1e-2,1e-1", "--seeds", 2, *TINY),
)


def test_a_grid_is_trained_once_and_shown_again_in_any_width(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = succeeded(regard(*AXES, "--out", "sweep", "--json", "rows.json"))
    assert "cells: 6 (3 × 2 seeds)" in first.out
    assert "refused: model.attention.kind=linformer: linformer attention does not" in first.out
    assert "6/6 softmax, 0.1, seed 1: accuracy" in first.err
    (row,) = json.loads((folder / "rows.json").read_text())["rows"]
    assert row["seeds"] == 2
    again = succeeded(regard(*AXES, "--out", "sweep"))
    assert not again.err
    shown = succeeded(regard("compare", "sweep"))
    assert shown.out in again.out
    assert "cells: 6 of 6 have ended" in shown.out
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", succeeded(regard("compare", "sweep")).out)
    table, _, _ = narrow.partition("intervals need")
    assert "…" not in table
    assert max(map(len, table.splitlines())) <= 80
    assert table.count("attention") == table.count("softmax") > 1, "each part names its rows"
    assert "memory (MB)" in table


def test_a_dry_run_writes_nothing(regard: Command) -> None:
    outcome = succeeded(regard(*AXES, "--dry-run"))
    assert "hours" in outcome.out
    assert not outcome.new


def test_bad_input(regard: Command) -> None:
    for arguments, says in [
        ("mqar --over model.n_layers --out new", "--over model.n_layers: write FIELD=VALUE"),
        ("mqar --over training.lr=1e-3,1e-2", "add --out FOLDER"),
        ("mqar --over model.n_layers=1,2 --out text.txt", "exists but is not a comparison"),
        ("grid.toml --out new", "grid.toml: no such file"),
        ("mqar --over model.n_layers=1,2 --resource mem_gb=8", "of --executor slurm or ray"),
        ("mqar --over model.n_layers=1,2 --executor ray --resource num_cpus", "write NAME=VALUE"),
        ("mqar --over model.n_layers=1,2 --score BLEU", "--score BLEU: no such score; there are"),
        ("--suite probes --score acuracy --out new", "did you mean accuracy"),
        (".", "is not a comparison"),
        (". --seeds 3", "leave --seeds out"),
        (". --jobs 2", "leave --jobs out"),
        (". --dry-run", "leave --dry-run out"),
        ("mqar --over model.n_layers=1,2 --dry-run --json x", "so it has no --add and --json"),
        ("--suite probes --dry-run --add run", "so it has no --add and --json"),
        ("--suite probes --seeds 1", "add --out FOLDER"),
        ("--out new", "name a TASK, a GRID.toml or --suite NAME"),
    ]:
        refused(regard("compare", *arguments.split()), says)


def test_a_suite_is_a_comparison_per_task(
    regard: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [
        tiny_grid(seeds=1, over={KIND: ["softmax"]}, tune={}),
        tiny_grid(
            task="copy",
            settings=[setting for setting in TINY if "pairs" not in setting]
            + ["task.length=4", "model.n_heads=1"],
            seeds=1,
            over={KIND: ["softmax", "elu"]},
            tune={},
        ),
    ]
    monkeypatch.setattr("regard.comparison.suite.load_suite", lambda _: two)
    command = ("compare", "--suite", "two", "training.batch=2", "--out", "both")
    estimated = succeeded(regard(*command, "--dry-run"))
    assert "two: 3 cells in 2 comparisons, 0.00 hours" in estimated.out
    assert not estimated.new
    first = succeeded(regard(*command))
    assert "mqar:\ncells: 1 (1 × 1 seeds)" in first.out
    assert "copy:\ncells: 2 (2 × 1 seeds)" in first.out
    index = (folder / "both" / "index.md").read_text("utf-8")
    assert "[mqar](mqar/report.html)" in index
    assert "| 2 of 2 |" in index
    again = succeeded(regard(*command))
    assert not again.err
    shown = succeeded(regard("compare", "both"))
    assert "copy:\nattention" in shown.out
    assert shown.out.count("have ended") == 2
    assert not shown.err
    refused(regard("compare", "both", "--json", "rows.json"), "such as both/copy")
