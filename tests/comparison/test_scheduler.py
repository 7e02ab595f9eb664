"""Grids are trained once, joined, added to, and refused where the folder isn't theirs.

`regard.compare` is the command as a function.
"""

import dataclasses
import json
import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from filelock import FileLock

import regard
from plans import plan_named
from regard import api
from regard.comparison import plan
from regard.comparison.folder import (
    Sweep,
    join_sweep,
    locked,
    read_cells,
    remove_cell,
    save_sweep,
)
from regard.comparison.grid import CellSettings, Grid, Refused
from regard.comparison.page import summarize
from regard.comparison.plan import estimate, plan_comparison
from regard.comparison.scheduler import (
    add_to_comparison,
    choose_executor,
    train_comparison,
    train_suite,
)
from regard.comparison.suite import summarize_suite
from regard.comparison.table import Comparison
from regard.config import to_toml
from regard.errors import UserError
from regard.runs.recipe import Recipe
from tiny import contents
from tiny_comparisons import KIND, LR, TINY, finished, made_up, tiny_grid, write_cells
from tiny_tasks import SETTINGS as OPTIONS

pytestmark = pytest.mark.usefixtures("without_workers")


def trained(grid: Grid, out: Path) -> Comparison:
    return train_comparison(plan_comparison(grid), out)


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid of one seed. Not to be changed: see `sweep`."""
    out = tmp_path_factory.mktemp("one_seed") / "sweep"
    trained(tiny_grid(seeds=1), out)
    return out


@pytest.fixture
def sweep(one_seed: Path, tmp_path: Path) -> Path:
    """A copy of `one_seed` in the test's own folder."""
    return Path(shutil.copytree(one_seed, tmp_path / "sweep"))


def test_a_grid_becomes_a_table_and_its_files(one_seed: Path) -> None:
    table = summarize(one_seed).table()
    assert [record[KIND] for record in table] == ["softmax", "elu"]
    assert all(record["seeds"] == 1 for record in table)
    assert {path.name for path in one_seed.iterdir()} == {
        *(".lock", "cells", "report.html", "sweep.json"),
        *("table.csv", "table.json", "table.md", "table.tex"),
    }
    assert json.loads((one_seed / "table.json").read_text())["rows"] == table


def test_a_larger_grid_trains_the_new_cells_alone(sweep: Path) -> None:
    before = contents(sweep / "cells")
    over = {KIND: ["elu", "bigbird"]}
    found = trained(tiny_grid(tune={LR: [0.003]}, over=over, seeds=2), sweep)
    after = contents(sweep / "cells")
    assert all(after[path] == content for path, content in before.items())
    assert len(read_cells(sweep)) == 2 * 2 + 2 * 2
    assert found.sweep.tune == {LR: ("0.001", "0.01", "0.003")}
    assert [record[KIND] for record in found.table()] == ["softmax", "elu", "bigbird"]


def test_a_new_axis_joins_the_cells_that_lie_on_it(tmp_path: Path) -> None:
    trained(tiny_grid(tune={}, seeds=1), tmp_path / "sweep")
    over = {KIND: ["softmax"], "model.n_layers": [1, 2]}
    found = trained(tiny_grid(over=over, tune={}, seeds=1), tmp_path / "sweep")
    rows = [(record[KIND], record["model.n_layers"]) for record in found.table()]
    assert rows == [("softmax", "1"), ("softmax", "2"), ("elu", "1")]


def test_other_settings_are_refused_and_nothing_changes(sweep: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"its runs differ in model\.d_model; add --over"):
        trained(tiny_grid(settings=(*TINY, "model.d_model=32")), sweep)
    assert contents(tmp_path) == before


def test_options_that_accompany_a_value_are_resumed(tmp_path: Path) -> None:
    options = {f"{KIND}=elu": ["model.n_layers=2"]}
    grid = tiny_grid(tune={}, seeds=1, options=options)
    cells = trained(grid, tmp_path / "sweep").cells
    assert trained(grid, tmp_path / "sweep").cells == cells
    assert [cell.value("model.n_layers") for cell in cells] == ["1", "2"]
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"its runs differ in model\.n_layers; add --over"):
        trained(tiny_grid(tune={}, seeds=1), tmp_path / "sweep")
    assert contents(tmp_path) == before


def test_an_axis_that_was_tuned_is_not_compared(sweep: Path) -> None:
    with pytest.raises(UserError, match="is compared and tuned in one folder"):
        trained(tiny_grid(over={LR: [0.001]}, tune={}, seeds=1), sweep)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_folder_of_something_else_is_left_alone(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    if kind == "folder":
        out.mkdir()
    (out / "notes" if kind == "folder" else out).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(UserError, match="exists but is not a comparison"):
        trained(tiny_grid(), out)
    assert contents(tmp_path) == before


def test_a_second_scheduler_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    out.mkdir()
    with (
        FileLock(out / ".lock"),
        pytest.raises(UserError, match="another regard compare is running"),
    ):
        trained(tiny_grid(), out)
    assert contents(out).keys() == {".lock"}


def test_a_run_made_by_hand_joins(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = (*TINY, f"{KIND}=elu", f"{LR}=0.001", "seed=2")
    plan_named("mqar", out=run, settings=settings).execute(OPTIONS)
    before = contents(run)
    for path in (run, *run.rglob("*")):
        path.chmod(path.stat().st_mode & ~stat.S_IWUSR)
    trained(tiny_grid(tune={}, seeds=2, settings=(*TINY, f"{LR}=0.001")), tmp_path / "sweep")
    found = add_to_comparison(tmp_path / "sweep", [run, run])
    assert [record["seeds"] for record in found.table()] == [2, 3]
    assert contents(run) == before
    (cell,) = (cell for cell in found.cells if cell.seed == 2)
    assert (cell.path / "model.safetensors").read_bytes() == before["model.safetensors"]
    assert all(path.stat().st_mode & stat.S_IWUSR for path in (cell.path, *cell.path.iterdir()))
    (cell.path / "config.toml").unlink()  # as a kill leaves a cell that is created
    again = add_to_comparison(tmp_path / "sweep", [run])
    assert [record["seeds"] for record in again.table()] == [2, 3]


def test_a_run_that_differs_does_not_join(sweep: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    plan_named("mqar", out=run, settings=(*TINY, "model.d_model=32")).execute(OPTIONS)
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"differ in model\.d_model"):
        add_to_comparison(sweep, [run])
    with pytest.raises(UserError, match="is not a run folder"):
        add_to_comparison(sweep, [tmp_path / "nothing"])
    assert contents(tmp_path) == before


def test_a_run_that_can_not_be_copied_is_told_in_a_line(sweep: Path, tmp_path: Path) -> None:
    run = shutil.copytree(next((sweep / "cells").iterdir()), tmp_path / "run")
    recipe = (run / "config.toml").read_text()
    (run / "config.toml").write_text(recipe.replace("seed = 0", "seed = 7"))
    (run / "notes.txt").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"notes\.txt can't be copied \(.*No such file"):
        add_to_comparison(sweep, [run])
    assert not list((sweep / "cells").glob(".*"))


def test_a_folder_without_a_comparison(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a comparison"):
        summarize(tmp_path)
    assert not contents(tmp_path)


def test_an_estimate_is_of_all_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = list(estimate(plan_comparison(tiny_grid())))
    assert [one.cells for one in found] == [2] * 4
    assert all(one.parameters and one.operations and one.seconds for one in found)
    assert not contents(tmp_path)


def test_an_estimate_is_made_for_each_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    def costs(recipe: Recipe, _: object) -> tuple[int, int, int, float]:
        return len(to_toml(recipe.tokenizer)), 1, 1, 1.0

    monkeypatch.setattr(plan, "_time", costs)
    over = {"tokenizer.kind": ["words", "characters"]}
    grid = Grid(task="classification", over=over, tune={LR: [1e-3, 1e-2]}, seeds=1)
    found = [one.parameters for one in estimate(plan_comparison(grid))]
    assert found[0] == found[1] != found[2] == found[3]


# As functions


def test_the_function_returns_what_the_folder_holds(tmp_path: Path) -> None:
    found = regard.compare(
        "mqar",
        over={KIND: ["softmax", "elu"]},
        tune={LR: np.geomspace(1e-3, 1e-2, 1)},
        seeds=2,
        baseline={KIND: "elu"},
        settings=TINY,
        out=tmp_path / "sweep",
        device="cpu",
    )
    assert found.table() == summarize(tmp_path / "sweep").table()
    assert [record["seeds"] for record in found.table()] == [2, 2]
    assert found.table()[1]["verdict"] == "baseline"


def test_a_suite_is_a_comparison_per_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "load_suite", lambda _: [tiny_grid(seeds=1)])
    found = regard.compare_suite("one", out=tmp_path, settings=["training.steps=2"], device="cpu")
    assert list(found) == ["mqar"]
    assert len(found["mqar"].cells) == 4
    assert {cell.recipe["training"]["steps"] for cell in found["mqar"].cells} == {2}
    assert summarize_suite(tmp_path)["mqar"].table() == found["mqar"].table()


def test_all_folders_of_a_suite_are_checked_first(tmp_path: Path) -> None:
    first = plan_comparison(tiny_grid())
    second = dataclasses.replace(first, grid=msgspec.structs.replace(first.grid, task="copy"))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "notes.txt").touch()
    with pytest.raises(UserError, match="copy: exists but is not a comparison"):
        list(train_suite([first, second], tmp_path))
    assert not (tmp_path / "mqar").exists()


def test_the_index_keeps_tasks_trained_before(tmp_path: Path) -> None:
    (tmp_path / "parity").mkdir()
    write_cells(made_up({("softmax", 0.1, 0): finished(0.5, 0.5)}, tmp_path / "parity"))
    list(train_suite([plan_comparison(tiny_grid(seeds=1))], tmp_path))
    assert "[parity]" in (tmp_path / "index.md").read_text("utf-8")
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


@pytest.mark.parametrize("jobs", [0, -1])
def test_a_number_of_jobs_below_one_is_refused(tmp_path: Path, jobs: int) -> None:
    with pytest.raises(UserError, match=f"jobs={jobs}: expected 1 or more"):
        choose_executor(Grid(task="copy"), tmp_path, jobs)


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """All cells failed, and the command succeeded."""
    with pytest.raises(UserError, match="--device gpu: can't be used here"):
        choose_executor(Grid(task="copy", cell=CellSettings(device="gpu")), tmp_path, 1)


def test_gpus_are_counted_without_memory_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs are for the workers."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("it allocates"))
    choose_executor(Grid(task="copy", cell=CellSettings(device="cuda")), tmp_path, 1)
    with pytest.raises(UserError, match=r"--device cuda:1: can't be used here: .* GPUs: 1"):
        choose_executor(Grid(task="copy", cell=CellSettings(device="cuda:1")), tmp_path, 1)


@pytest.mark.parametrize("changed", ["code", "precision"])
def test_other_code_or_precision_is_refused_and_nothing_changes(
    changed: str, tmp_path: Path
) -> None:
    code, says = tmp_path / "mine.py", r"two versions of mine\.py|differ in --precision"
    code.write_text(
        "from regard.attention import Softmax\n\n\nclass Mine(Softmax):\n    name = 'mine'\n"
    )
    usual: dict[str, Any] = {"over": {KIND: ["softmax", f"{code}:Mine"]}, "tune": {}, "seeds": 1}
    trained(tiny_grid(**usual), tmp_path / "sweep")
    before = contents(tmp_path / "sweep")
    if changed == "code":
        code.write_text(code.read_text() + "\n")
    else:
        usual["cell"] = {"precision": "bfloat16"}
    with pytest.raises(UserError, match=says):
        trained(tiny_grid(**usual), tmp_path / "sweep")
    assert contents(tmp_path / "sweep") == before


def test_options_of_a_value_are_equal_in_its_row(tmp_path: Path) -> None:
    """Cells with 8 and 16 features were one row, and of equal seeds only one counted."""

    def grid(features: int) -> Grid:
        options = {f"{KIND}=favor-positive": [f"model.attention.features={features}"]}
        return tiny_grid(over={KIND: ["elu", "favor-positive"]}, tune={}, seeds=1, options=options)

    trained(grid(8), tmp_path / "sweep")
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"differ in model\.attention\.features; add --over"):
        trained(grid(16), tmp_path / "sweep")
    assert contents(tmp_path) == before


def test_a_row_of_a_family_has_one_size(tmp_path: Path) -> None:
    over = {"model.kind": ["decoder"]}
    trained(tiny_grid(over=over, tune={}, seeds=1), tmp_path / "sweep")
    with pytest.raises(UserError, match=r"differ in model\.d_model"):
        trained(
            tiny_grid(over=over, tune={}, seeds=1, settings=(*TINY, "model.d_model=32")),
            tmp_path / "sweep",
        )


def test_a_run_of_another_precision_does_not_join(sweep: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    plan_named("mqar", out=run, settings=(*TINY, f"{LR}=0.001", "seed=7")).execute(OPTIONS)
    for state in run.glob("checkpoints/*/state.json"):
        state.write_text(state.read_text().replace('"float32"', '"bfloat16"'))
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"was trained in bfloat16, the comparison's cells are in"):
        add_to_comparison(sweep, [run])
    assert contents(tmp_path) == before


def test_a_cell_of_another_comparison_may_have_other_threads(sweep: Path, tmp_path: Path) -> None:
    settings, one = (*TINY, "seed=7"), {"tune": {LR: [0.001]}, "seeds": 1, "cell": {"threads": 2}}
    trained(tiny_grid(over={KIND: ["softmax"]}, settings=settings, **one), tmp_path / "other")
    (cell,) = read_cells(tmp_path / "other")
    add_to_comparison(sweep, [cell.path])
    assert 7 in {one.seed for one in read_cells(sweep)}


def test_failed_cells_are_replaced_when_their_code_is_corrected(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    text = "from regard.attention import Softmax\n\n\nclass Mine(Softmax):\n    name = 'mine'\n"
    code.write_text(text, encoding="utf-8")
    grid = tiny_grid(over={KIND: ["softmax", f"{code}:Mine"]}, tune={}, seeds=1)
    trained(grid, tmp_path / "sweep")
    (cell,) = (one for one in read_cells(tmp_path / "sweep") if one.code)
    failed = {"state": "failed", "attempt": 1, "reason": "RuntimeError: x"}
    (cell.path / "outcome.json").write_text(json.dumps(failed), encoding="utf-8")
    code.write_text(f"{text}\n", encoding="utf-8")
    found = trained(grid, tmp_path / "sweep")
    assert [record["seeds"] for record in found.table()] == [1, 1]
    assert not found.failures()


def test_a_kill_leaves_no_half_deleted_cell(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell without its outcome.json, but with its config.toml, refused every later command."""
    first, *others = read_cells(sweep)

    def killed(path: Path) -> None:
        (path / "outcome.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("regard.comparison.folder.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_cell(first.path)
    assert read_cells(sweep) == others
    with locked(sweep):
        assert not list((sweep / "cells").glob(".*"))


def test_a_run_is_added_without_half_written_files(sweep: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    plan_named("mqar", out=run, settings=(*TINY, f"{LR}=0.001", "seed=7")).execute(OPTIONS)
    (run / ".metrics.jsonl.1.partial").write_text("{", encoding="utf-8")
    add_to_comparison(sweep, [run])
    assert not list(sweep.rglob(".*.partial"))


def test_a_refusal_ends_when_its_values_are_trained(tmp_path: Path) -> None:
    refused = (Refused(values={KIND: "elu"}, reason="is not causal"),)
    save_sweep(tmp_path, Sweep(over={KIND: ("softmax",)}, tune={}, refused=refused))
    assert join_sweep(tmp_path, Sweep(over={KIND: ("argmax",)}, tune={})).refused == refused
    assert join_sweep(tmp_path, Sweep(over={KIND: ("elu",)}, tune={})).refused == ()
