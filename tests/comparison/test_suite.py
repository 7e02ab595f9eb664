"""Suites are grids in data, completed with what they have in common."""

from pathlib import Path

import pytest

from regard.attention.config import supporting
from regard.comparison.folder import Sweep, save_sweep
from regard.comparison.plan import plan_comparison
from regard.comparison.scheduler import train_suite
from regard.comparison.suite import load_suite, save_index, suites
from regard.errors import UserError
from regard.runs.recipes import TASKS
from regard.tasks.probes import ProbeConfig
from tiny_comparisons import KIND, LR, made_up

REFUSED = {
    ("families", "classification"): {("encoder", "lm"), ("encoder-decoder", "classification")}
    | {("rnn-encoder-decoder", "classification")},
    ("families", "translation"): {("encoder",)},
    ("families", "summaries"): {("encoder",)},
    ("families", "retrieval"): {("encoder-decoder",), ("rnn-encoder-decoder",)},
    ("lengths", "needle"): {("alibi", "gated-deltanet"), ("alibi", "gated-deltanet*3+softmax")},
}
"""Families that can't learn a task, heads that they don't have, and recurrences with ALiBi."""


@pytest.mark.parametrize("name", suites())
def test_the_grids_of_a_suite_can_be_trained(name: str) -> None:
    for grid in load_suite(name):
        planned = plan_comparison(grid)
        refused = {tuple(one.values.values()) for one in planned.sweep.refused}
        assert refused == REFUSED.get((name, grid.task), set())
        assert len(planned.recipes) == len(planned.combinations) * 3


def test_the_probes_are_a_suite_with_common_axes() -> None:
    grids = load_suite("probes")
    tasks = [grid.task for grid in grids]
    probes = [name for name, recipe in TASKS.items() if isinstance(recipe.task, ProbeConfig)]
    assert len(set(tasks)) == len(tasks)
    circuits = {"repeated", "indirect-object", "bigram-backcopy"}  # docs/circuits.md
    assert set(probes) - set(tasks) == {"reverse"} | circuits
    for grid in grids:
        assert KIND in grid.over
        assert list(grid.tune) == [LR]
        assert "model.short_conv=4" in grid.settings
    assert grids[0].over["task.pairs"] == [4, 8, 16]
    assert "task.vocabulary=8192" in grids[0].settings


def test_all_mechanisms_of_decoders_are_a_suite() -> None:
    grids = load_suite("mechanisms")
    causal = [kind for kind in supporting("alignment") if kind in supporting("bidirectional")]
    assert [grid.task for grid in grids] == ["mqar", "parity", "selective-copy"]
    for grid in grids:
        assert set(grid.over[KIND]) <= set(causal)
        assert len(grid.tune[LR]) == 3
        assert "model.short_conv=4" in grid.settings


def test_recurrences_are_a_suite_of_their_own() -> None:
    parity, recall = load_suite("recurrences")
    recurrences = set(supporting("value_heads"))
    assert set(recall.over[KIND]) == recurrences
    assert recurrences > set(parity.over[KIND])


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(UserError, match=r"--suite probe: no such suite; .*did you mean probes"):
        load_suite("probe")


def test_the_index_links_the_page_of_each_task(tmp_path: Path) -> None:
    waiting = made_up({("softmax", 0.1, 0): None})
    text = save_index(tmp_path, {"mqar": waiting}).read_text("utf-8")
    assert text.splitlines()[2] == "| [mqar](mqar/report.html) | – | – | 0 of 1 |"


def test_a_suite_is_not_mixed_into_a_comparison(tmp_path: Path) -> None:
    save_sweep(tmp_path, Sweep(over={}, tune={}))
    with pytest.raises(UserError, match="is the comparison of a single task; choose another"):
        next(train_suite([], tmp_path))
