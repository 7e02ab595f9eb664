"""Matched models have the cost of the baseline; those without a size to change are refused."""

from pathlib import Path

import pytest

from plans import plan_named
from regard.comparison.folder import join_sweep, save_sweep
from regard.comparison.matching import TOLERANCE
from regard.comparison.page import summarize
from regard.comparison.plan import PlannedComparison, estimate, plan_comparison
from regard.comparison.scheduler import add_to_comparison, train_comparison
from regard.errors import UserError
from tiny_comparisons import KIND, TINY, tiny_grid
from tiny_tasks import SETTINGS as OPTIONS

pytestmark = pytest.mark.usefixtures("without_workers")

D_FF, FEATURES = "model.d_ff", "model.attention.features"


def planned(kinds: tuple[str, ...] = ("softmax", "elu"), **changes: object) -> PlannedComparison:
    usual = {"over": {KIND: kinds}, "tune": {}, "seeds": 1}
    return plan_comparison(tiny_grid(**usual | changes))


def sizes_of(found: PlannedComparison) -> list[dict[str, str]]:
    return [one.sizes for one in found.combinations]


def test_states_are_matched_by_features() -> None:
    kinds = ("softmax", "elu", "favor-positive", "favor-trigonometric")
    settings = [*TINY, "model.d_model=64", "model.n_heads=1", "model.context_length=256"]
    found = planned(kinds, match="state", baseline={KIND: "elu"}, settings=settings)
    assert [list(sizes) for sizes in sizes_of(found)] == [[], [], [FEATURES]]
    target, *reached = (one.state_bytes for one in estimate(found))
    assert target is not None
    assert all(abs((one or 0) - target) <= TOLERANCE * target for one in reached)
    (refused,) = found.sweep.refused
    assert refused.values == {KIND: "softmax"}
    assert refused.reason == f"has 133,896 state bytes, not {target:,}, and no {FEATURES} to change"


def test_parameters_are_matched_by_feed_forward_layers() -> None:
    over = {"model.n_layers": [2, 1, 3]}
    found = planned(over=over, match="parameters", settings=[*TINY, "model.n_heads=1"])
    assert [list(sizes) for sizes in sizes_of(found)] == [[], [D_FF], [D_FF]]
    counts = [one.parameters for one in estimate(found)]
    assert max(counts) - min(counts) <= 2 * TOLERANCE * counts[0]
    assert counts[0] == next(estimate(planned(over=over, settings=found.grid.settings))).parameters


def test_a_cost_out_of_reach_is_refused() -> None:
    over = {"model.d_model": [16, 128]}
    found = planned(over=over, match="parameters")
    (refused,) = found.sweep.refused
    assert refused.values == {"model.d_model": "128"}
    assert "parameters: the nearest is" in refused.reason
    assert found.sweep.over == {"model.d_model": ("16",)}


def test_equal_models_are_left_as_they_are() -> None:
    found = planned(match="parameters")
    assert sizes_of(found) == [{}, {}]
    assert found.sweep.sizes == ()


def test_the_size_to_change_is_no_axis() -> None:
    with pytest.raises(UserError, match=r"--match parameters: sets model\.d_ff, which is an axis"):
        planned(match="parameters", over={D_FF: [16, 32]})


def test_a_task_of_texts_is_refused() -> None:
    with pytest.raises(UserError, match="--match state: requires a task of token ids"):
        planned(task="casing", settings=[], over={"model.decoder.d_ff": [64]}, match="state")


def test_the_changed_size_is_in_the_table(tmp_path: Path) -> None:
    grid = planned(over={"model.n_layers": [2, 1]}, match="parameters")
    train_comparison(grid, tmp_path, jobs=1)
    two, one = summarize(tmp_path).table()
    assert two[D_FF] is None
    assert int(one[D_FF]) > 64
    assert abs(one["parameters"] - two["parameters"]) <= TOLERANCE * two["parameters"]
    assert "| d_ff |" in (tmp_path / "table.md").read_text("utf-8")


def test_a_folder_has_one_match(tmp_path: Path) -> None:
    save_sweep(tmp_path, planned(match="parameters").sweep)
    with pytest.raises(UserError, match=r"\(parameters\), not to nothing; choose another --out"):
        join_sweep(tmp_path, planned().sweep)


def test_an_added_run_has_the_matched_size(tmp_path: Path) -> None:
    train_comparison(planned(over={"model.n_layers": [2, 1]}, match="parameters"), tmp_path / "s")
    run = tmp_path / "run"
    plan_named("mqar", out=run, settings=(*TINY, "seed=7")).execute(OPTIONS)
    with pytest.raises(UserError, match=r"differ in model\.d_ff"):
        add_to_comparison(tmp_path / "s", [run])
