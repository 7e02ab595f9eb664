"""regard.compare is the command as a function."""

from pathlib import Path

import numpy as np
import pytest

import regard
from regard import api
from regard.comparison import scheduler
from regard.comparison.summary import summarize, summarize_suite
from regard.errors import UserError
from tiny_comparisons import KIND, LR, TINY, run_here, tiny_grid


def test_the_function_returns_what_the_folder_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "run_locally", run_here)
    monkeypatch.setattr("regard.training.sources.probe.PROBE_ROWS", 100)
    found = regard.compare(
        "mqar",
        over={KIND: ["softmax", "elu"]},
        tune={LR: np.geomspace(1e-3, 1e-1, 3)},
        seeds=2,
        baseline={KIND: "elu"},
        settings=TINY,
        out=tmp_path / "sweep",
        device="cpu",
    )
    assert found.table() == summarize(tmp_path / "sweep").table()
    assert found.table()[1]["verdict"] == "baseline"


def test_a_suite_is_a_comparison_per_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "run_locally", run_here)
    monkeypatch.setattr("regard.training.sources.probe.PROBE_ROWS", 100)
    monkeypatch.setattr(api, "load_suite", lambda _: [tiny_grid(seeds=1)])
    found = regard.compare_suite("one", out=tmp_path, settings=["training.steps=2"], device="cpu")
    assert list(found) == ["mqar"]
    assert len(found["mqar"].cells) == 4
    assert {cell.recipe["training"]["steps"] for cell in found["mqar"].cells} == {2}
    assert summarize_suite(tmp_path)["mqar"].table() == found["mqar"].table()
    assert (tmp_path / "index.md").exists()


def test_an_executor_with_a_wrong_resource(tmp_path: Path) -> None:
    executor = {"kind": "slurm", "mem": 8}
    with pytest.raises(UserError, match="unknown field `mem`; allowed: cluster, timeout_min"):
        regard.compare("mqar", over={LR: [1, 2]}, out=tmp_path / "sweep", executor=executor)
    with pytest.raises(UserError, match="did you mean slurm"):
        regard.compare("mqar", over={LR: [1, 2]}, out=tmp_path / "sweep", executor="slrm")
    assert not list(tmp_path.iterdir())


def test_a_suite_without_seeds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="seeds: expected an integer >= 1"):
        regard.compare_suite("recall", out=tmp_path / "suite", seeds=0)
    assert not list(tmp_path.iterdir())
