"""Axes become recipes; impossible ones are refused in one line."""

from datetime import date
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.comparison.config import RayConfig, SlurmConfig
from regard.comparison.folder import plain_values, value_at
from regard.comparison.grid import (
    Grid,
    axes_of,
    base_recipe,
    change_grid,
    check_size,
    expand,
    parse_axis,
    read_grid,
)
from regard.comparison.plan import plan_comparison
from regard.config import convert
from regard.errors import UserError
from tiny_comparisons import KIND, LR, TINY, tiny_grid


@given(st.lists(st.from_regex(r"[a-z0-9.\-]+", fullmatch=True), min_size=1, max_size=5))
def test_values_are_split_at_commas(values: list[str]) -> None:
    assert parse_axis(f"a.b={','.join(values)}", "--over") == ("a.b", values)


def test_commas_inside_a_value_do_not_split_it() -> None:
    path, values = parse_axis('a={kind="x", n=[1,2]},[3,4],"5,6"', "--over")
    assert (path, values) == ("a", ['{kind="x", n=[1,2]}', "[3,4]", '"5,6"'])


def test_all_combinations_with_all_seeds() -> None:
    planned = plan_comparison(tiny_grid())
    made = {
        (value_at(values, KIND), recipe.training.lr, recipe.seed)
        for recipe in planned.recipes
        for values in [plain_values(recipe)]
    }
    assert made == {(k, lr, s) for k in ("softmax", "elu") for lr in (1e-3, 1e-2) for s in (0, 1)}
    assert [recipe.seed for recipe in planned.recipes] == [0] * 4 + [1] * 4


def test_a_kind_is_chosen_before_its_options() -> None:
    grid = tiny_grid(over={"model.attention.features": [4, 8], KIND: ["favor-positive"]}, tune={})
    combinations, refused = expand(base_recipe(grid), axes_of(grid), {})
    made = [value_at(plain_values(one.recipe), "model.attention.features") for one in combinations]
    assert made == ["4", "8"]
    assert not refused


def test_an_option_that_only_some_kinds_have_refuses_the_others() -> None:
    over = {KIND: ["softmax", "favor-positive"], "model.attention.features": [4, 8]}
    planned = plan_comparison(tiny_grid(over=over, tune={}))
    assert len(planned.combinations) == 2
    assert [one.values[KIND] for one in planned.sweep.refused] == ["softmax", "softmax"]


def test_a_mechanism_that_can_not_be_built_is_listed_once() -> None:
    planned = plan_comparison(tiny_grid(over={KIND: ["softmax", "linformer"]}))
    (refused,) = planned.sweep.refused
    assert refused.values == {KIND: "linformer"}
    assert "does not support causal masks" in refused.reason
    assert len(planned.combinations) == 2


@pytest.mark.parametrize("values", [[0, 0.5], [0.5, 0]])
def test_an_objective_of_another_model_is_refused_by_itself(values: list[float]) -> None:
    shares = "objective.masked_tokens"
    planned = plan_comparison(Grid(task="world", over={shares: values}))
    assert planned.sweep.over == {shares: ("0.0",)}
    (refused,) = planned.sweep.refused
    assert refused.values == {shares: "0.5"}
    assert "reads both ways" in refused.reason


def test_too_short_a_context_is_refused_before_anything_runs() -> None:
    grid = tiny_grid(over={"model.context_length": [8, 16]})
    (refused,) = plan_comparison(grid).sweep.refused
    assert refused.values == {"model.context_length": "8"}
    assert "context_length is 8" in refused.reason


def test_settings_accompany_a_value_of_an_axis() -> None:
    over = {"model.kind": ["decoder", "rnn"], "training.batch": [2, 4]}
    options = {"model.kind=rnn": ["model.d_model=8"], "training.batch=4": ["training.lr=0.5"]}
    planned = plan_comparison(tiny_grid(over=over, tune={}, options=options))
    made = [
        (values["model"]["kind"], values["model"]["d_model"], values["training"]["lr"])
        for values in (plain_values(one.recipe) for one in planned.combinations)
    ]
    lr = base_recipe(tiny_grid()).training.lr
    assert made == [("decoder", 16, lr), ("decoder", 16, 0.5), ("rnn", 8, lr), ("rnn", 8, 0.5)]


def test_a_table_is_a_value() -> None:
    attention = [{"kind": "softmax"}, {"kind": "favor-positive", "features": 8}]
    planned = plan_comparison(tiny_grid(over={"model.attention": attention}, tune={}))
    first, second = (plain_values(one.recipe) for one in planned.combinations)
    assert value_at(first, KIND) == "softmax"
    assert value_at(second, "model.attention.features") == "8"


def test_an_infinite_window_which_can_not_be_stored_is_refused() -> None:
    with pytest.raises(UserError, match=r"within: expected a number <= 1000000\.0, not inf"):
        change_grid(None, "mqar", (), {"within": inf})


def test_infinity_is_a_value() -> None:
    planned = plan_comparison(tiny_grid(over={"training.max_grad_norm": [1.0, inf]}))
    assert planned.sweep.over == {"training.max_grad_norm": ("1.0", "inf")}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task": "mqra"}, "mqra: no such task; there are"),
        ({"over": {"model.n_layer": [1, 2]}}, "no such field"),
        ({"over": {KIND: []}}, f"--over {KIND}: has an empty value"),
        ({"tune": {LR: [""]}}, f"--tune {LR}: has an empty value"),
        ({"tune": {LR: ["fast"]}}, f"--tune {LR}=fast: expected a number"),
        ({"tune": {LR: [1e-3, -1]}}, f"--tune {LR}=-1: expected a number > 0"),
        ({"tune": {LR: [1e-3, "0.001"]}}, f"--tune {LR}: has 0.001 twice"),
        ({"tune": {LR: ["1e-3", "0.001"]}}, "1e-3 and 0.001 are the same value"),
        ({"over": {LR: [1e-3]}}, f"{LR}: is compared and tuned"),
        ({"over": {"seed": [0, 1]}}, "seed: can't be an axis"),
        ({"over": {KIND: ["linformer"]}}, "no combination can be trained: linformer"),
        ({"baseline": {KIND: "bigbird"}}, f"--baseline {KIND}=bigbird: is not among"),
        ({"baseline": {"model.n_layers": 2}}, "--baseline model.n_layers: is not compared"),
        ({"options": {f"{KIND}=elo": []}}, f"options '{KIND}=elo': no such value; there are"),
        ({"options": {f"{KIND}=elu": ["model.n_heds=2"]}}, "did you mean n_heads"),
        ({"baseline": {KIND: []}}, f"--baseline {KIND}: has 0 values; give one"),
        ({"over": {"model.n_layers": [date(2026, 1, 1)]}}, "expected an integer >= 1, not '2026"),
        ({"settings": [*TINY, f"seed={2**32 - 1}"]}, "--seeds: seed: expected an integer <= 42949"),
        ({"seeds": 251}, "the grid has 1004 cells; to train so many, add --cells 1004"),
    ],
)
def test_bad_input_is_one_line(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as caught:
        plan_comparison(tiny_grid(**changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_million_cells_are_counted_before_they_are_made() -> None:
    axes = axes_of(tiny_grid(tune={LR: [i / 1e6 for i in range(1, 1001)]}))
    with pytest.raises(UserError, match="1000000 cells"):
        check_size(axes, 500, None)
    check_size(axes, 500, 10**6)
    check_size(axes, 400, 10**6)  # one number confirms all grids of a suite
    with pytest.raises(UserError, match="add --cells 1000000"):
        check_size(axes, 500, 10**6 - 1)


def test_a_file_of_a_grid(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        'task = "mqar"\nseeds = 3\n[over]\nmodel.attention.kind = ["softmax", "elu"]\n'
        '[tune]\n"training.lr" = [1e-3, 1e-2]\n[cell]\nthreads = 2\n',
        encoding="utf-8",
    )
    grid = change_grid(read_grid(file), "", TINY, {"within": 0.1, "over": ["model.n_layers=1,2"]})
    assert (grid.seeds, grid.cell.threads, grid.within) == (3, 2, 0.1)
    assert len(plan_comparison(grid).recipes) == 2 * 2 * 2 * 3
    with pytest.raises(UserError, match="is an axis of the grid already; leave it out"):
        change_grid(grid, "", (), {"tune": ["training.lr=1e-4"]})
    file.write_text('task = "mqar"\nseed = 3\n', encoding="utf-8")
    with pytest.raises(UserError, match="unknown field `seed`"):
        read_grid(file)


def test_a_value_of_none_is_a_baseline() -> None:
    path = "model.n_kv_heads"
    grid = tiny_grid(over={path: ["1", "none"]}, tune={}, baseline={path: "none"})
    assert plan_comparison(grid).sweep.baseline == {path: ""}


@pytest.mark.parametrize("match", [None, "parameters"])
def test_a_baseline_that_cannot_be_built_is_refused(match: str | None) -> None:
    over = {"model.d_model": [16, 24], "model.n_heads": [2, 3]}
    baseline = {"model.d_model": 16, "model.n_heads": 3}
    says = r"^--baseline model\.d_model=16 model\.n_heads=3: can't be trained together"
    with pytest.raises(UserError, match=says):
        plan_comparison(tiny_grid(over=over, tune={}, baseline=baseline, match=match))


def test_a_baseline_on_the_command_line_replaces_that_of_the_file() -> None:
    file = tiny_grid(baseline={KIND: "softmax"})
    grid = change_grid(file, "mqar", (), {"baseline": [f"{KIND}=elu"]})
    assert plan_comparison(grid).sweep.baseline == {KIND: "elu"}
    with pytest.raises(UserError, match="is given twice"):
        change_grid(file, "mqar", (), {"baseline": [f"{KIND}=elu", f"{KIND}=softmax"]})


def test_the_executor_and_its_resources_are_changed() -> None:
    grid = convert({"task": "mqar", "executor": {"kind": "slurm", "mem_gb": 4}}, Grid, where="grid")
    options = {"resource": ("slurm_partition=long", "mem_gb=8")}
    changed = change_grid(grid, "mqar", (), options)
    assert changed.executor == SlurmConfig(mem_gb=8, slurm_partition="long")
    assert change_grid(grid, "mqar", (), {"executor": "ray"}).executor == RayConfig()
    assert change_grid(grid, "mqar", (), {"executor": "slurm"}).executor == grid.executor


def test_an_entry_of_a_list_is_no_axis() -> None:
    with pytest.raises(UserError, match=r"--over model\.layers\.1\.d_ff: an entry of a list"):
        axes_of(tiny_grid(over={"model.layers.1.d_ff": ["16", "64"]}, tune={}))


def test_code_in_another_folder_can_be_the_baseline(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from regard.attention import Softmax\n\n\nclass Mine(Softmax):\n    name = 'mine'\n"
    )
    grid = tiny_grid(
        over={KIND: [f"{code}:Mine", "softmax"]}, tune={}, baseline={KIND: f"{code}:Mine"}
    )
    sweep = plan_comparison(grid).sweep
    assert sweep.over[KIND] == ("mine.py:Mine", "softmax")  # as in config.toml of cells
    assert sweep.baseline == {KIND: "mine.py:Mine"}
