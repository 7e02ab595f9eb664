"""Tuned values are chosen by validation; what isn't known isn't ranked."""

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from regard.cli.compare import _print_table
from regard.comparison.export import failure_lines, readable, to_latex, to_markdown
from regard.comparison.folder import Outcome
from regard.comparison.grid import Refused
from regard.comparison.table import Comparison
from regard.errors import UserError
from regard.files import to_csv
from tiny_comparisons import COSTS, DIVERGED, KIND, LR, finished, made_up

RATES = (1e-4, 1e-3, 1e-2)
Outcomes = dict[tuple[str, float, int], Outcome | None]


def curve(kind: str, scores: tuple[float, float, float], seeds: int = 3) -> Outcomes:
    """Validation scores by learning rate; test scores are a tenth lower, seeds differ a little."""
    return {
        (kind, lr, seed): finished(score + seed / 1000, score - 0.1 + seed / 1000)
        for lr, score in zip(RATES, scores, strict=True)
        for seed in range(seeds)
    }


def test_the_choice_is_by_validation_and_the_report_by_test() -> None:
    outcomes = curve("softmax", (0.3, 0.9, 0.4))
    outcomes |= {("softmax", 1e-2, seed): finished(0.4, 1.0) for seed in range(3)}  # best in test
    (record,) = made_up(outcomes).table()
    assert record[LR] == "0.001"
    assert record["validation"] == pytest.approx(0.901)
    assert record["test"] == pytest.approx(0.801)
    assert (record["seeds"], record["rank"]) == (3, 1)
    assert record["operations"] == COSTS.operations


@pytest.mark.parametrize(
    ("scores", "edge"),
    [
        ((0.3, 0.9, 0.4), None),
        ((0.9, 0.3, 0.4), LR),
        ((0.3, 0.4, 0.9), LR),
        ((0.2, 0.9, 0.9), None),
    ],
)
def test_a_best_value_at_the_edge_is_flagged_and_not_ranked(
    scores: tuple[float, float, float], edge: str | None
) -> None:
    comparison = made_up(curve("softmax", (0.1, 0.2, 0.1)) | curve("elu", scores))
    record = comparison.table()[1]
    assert record["at the edge"] == edge
    assert (record["rank"] is None) == (edge is not None)
    best = comparison.best()
    assert best is not None
    assert best[KIND] == ("softmax" if edge else "elu")


def test_one_value_has_no_edge() -> None:
    outcomes = {("softmax", 1e-3, 0): finished(0.5, 0.5)}
    assert made_up(outcomes).table()[0]["rank"] == 1


@given(st.lists(st.integers(0, 100), min_size=3, max_size=3), st.integers(0, 100))
def test_the_window_is_within_the_stated_distance(scores: list[int], within: int) -> None:
    outcomes = {("softmax", lr, 0): finished(s, s) for lr, s in zip(RATES, scores, strict=True)}
    (row,) = made_up(outcomes, within=within).rows
    expected = [str(lr) for lr, s in zip(RATES, scores, strict=True) if max(scores) - s <= within]
    assert row.window(LR) == expected


def test_the_window_has_its_end() -> None:
    """Also where 1.0 - 0.95 is rounded to more than 0.05."""
    scores = (0.95, 1.0, 0.9)
    outcomes = {("softmax", lr, 0): finished(s, s) for lr, s in zip(RATES, scores, strict=True)}
    assert made_up(outcomes).rows[0].window(LR) == [str(lr) for lr in RATES[:2]]


def test_a_value_that_lost_a_seed_is_not_chosen() -> None:
    outcomes = curve("softmax", (0.3, 0.9, 0.4)) | {("softmax", 1e-3, 1): DIVERGED}
    comparison = made_up(outcomes)
    (record,) = comparison.table()
    assert record[LR] == "0.01"
    assert record["diverged or failed"] == 1
    assert comparison.rows[0].curve(LR) == {"0.0001": 0.301, "0.001": None, "0.01": 0.401}
    (line,) = failure_lines(comparison)
    assert line == f"{KIND}=softmax, {LR}=0.001, seed 1: diverged at step 3: step 3: loss nan"


def test_cells_that_failed_alike_share_a_line() -> None:
    other = replace(DIVERGED, step=7, reason="step 7: loss nan")
    strange = replace(DIVERGED, step=7, reason="step 7: gradient inf")
    found = zip((DIVERGED, strange, other), (2, 1, 0), strict=True)
    lines = failure_lines(made_up({("softmax", 1e-3, seed): one for one, seed in found}))
    where = f"{KIND}=softmax, {LR}=0.001, seed"
    assert lines == [
        f"{where} 1: diverged at step 7: step 7: gradient inf",
        f"{where}s 0, 2: diverged at steps 7, 3: step 7: loss nan",
    ]


def test_a_row_without_any_score_is_shown() -> None:
    outcomes = {("softmax", lr, 0): DIVERGED for lr in RATES}
    (record,) = made_up(outcomes).table()
    assert (record["test"], record["rank"], record["diverged or failed"]) == (None, None, 3)


def test_a_half_finished_sweep_has_a_table() -> None:
    outcomes = curve("softmax", (0.3, 0.9, 0.4)) | {("softmax", 1e-2, 2): None}
    (record,) = made_up(outcomes).table()
    assert (record[LR], record["waiting"], record["rank"]) == ("0.001", 1, None)
    assert made_up({("softmax", 1e-3, 0): None}).table()[0]["test"] is None


def test_differences_are_paired_and_said_in_words() -> None:
    noise = (0.0, 0.01, -0.02, 0.015, 0.005)
    outcomes = {("softmax", 1e-3, seed): finished(0.5, 0.5 + x) for seed, x in enumerate(noise)}
    for kind, shift in (("better", 0.2), ("same", 0.0), ("worse", -0.2)):
        outcomes |= {
            (kind, 1e-3, seed): finished(0.5, 0.5 + shift + x * (-1) ** seed)
            for seed, x in enumerate(noise)
        }
    table = made_up(outcomes).table()
    assert [record["verdict"] for record in table] == [
        "baseline",
        "better",
        "5 seeds can't tell these apart",
        "worse",
    ]
    other = made_up(outcomes, baseline={KIND: "worse"}).table()
    assert [record["verdict"] for record in other][1:] == ["better", "better", "baseline"]


@pytest.mark.parametrize(("score", "highest"), [("accuracy", 1), ("BLEU", 100)])
def test_intervals_end_where_the_score_does(score: str, highest: float) -> None:
    tests = (0.0, 0.0, 0.95 * highest)
    outcomes: Outcomes = {
        (kind, 1e-3, seed): replace(finished(0, 0), validation={score: 0.5}, test={score: test})
        for kind, sign in (("softmax", 1), ("elu", -1))
        for seed, test in enumerate(tests[::sign])
    }
    for record in made_up(outcomes).table():
        assert (record["test low"], record["test high"]) == (0, highest)
        assert record["rank"] is None  # equal means: no seeds can tell them apart
    assert (record["difference low"], record["difference high"]) == (-highest, highest)


def test_rows_have_ranks_where_seeds_tell_them_apart() -> None:
    """All rows have equal tuning; the test scores of the baseline, "same" and "worse" differ."""
    means = {"softmax": 0.8, "same": 0.81, "worse": 0.2}
    noise = {"softmax": (0, 0.02, 0.01), "same": (0.01, 0, 0.02), "worse": (0, 0.02, 0.01)}
    outcomes: Outcomes = {
        (kind, 1e-3, seed): finished(0.5, mean + noise[kind][seed])
        for kind, mean in means.items()
        for seed in range(3)
    }
    comparison = made_up(outcomes)
    ranks = {record[KIND]: record["rank"] for record in comparison.table()}
    assert ranks == {"softmax": None, "same": None, "worse": 3}
    best = comparison.best()
    assert best is not None
    assert best[KIND] == "same"
    columns, rows = readable(comparison)
    assert columns[:3] == ["rank", "attention", "accuracy"]
    assert [row[1] for row in rows] == ["same", "softmax", "worse"]
    assert not any({row[i] for row in rows} == {"–"} for i in range(len(columns)))
    alone = made_up({("softmax", 1e-3, 0): finished(0.5, 0.5)})
    assert "difference" not in readable(alone)[0]


@pytest.mark.parametrize(("seeds", "interval"), [(2, False), (3, True)])
def test_two_seeds_have_no_interval(seeds: int, interval: bool) -> None:
    """Student's interval of two scores was [0, 1]."""
    outcomes: Outcomes = {
        (kind, 1e-3, seed): finished(0.5, 0.5 + seed / 10)
        for kind in ("softmax", "elu")
        for seed in range(seeds)
    }
    comparison = made_up(outcomes)
    text = to_markdown(comparison)
    assert ("[" in text) is interval
    assert ("- intervals need 3 seeds" in text) is not interval


def test_a_table_has_no_empty_column_and_no_minus_zero() -> None:
    outcomes: Outcomes = {
        (kind, 1e-3, seed): finished(0.5, 0.5 + seed / 10 - lost)
        for kind, lost in (("softmax", 0.0), ("elu", 1e-6))
        for seed in range(3)
    }
    tuned = made_up(outcomes)
    comparison = Comparison(tuned.out, replace(tuned.sweep, tune={}), tuned.cells)
    columns, rows = readable(comparison)
    assert "window" not in columns
    assert "window" in readable(tuned)[0]
    (difference,) = (row[columns.index("difference")] for row in rows if "elu" in row)
    assert difference == "+0.000 [+0.000, +0.000]"
    assert {"FLOPs/row", "state (bytes)"} < set(columns)


def test_another_score_can_be_compared() -> None:
    with pytest.raises(UserError, match="--score BLEU: no such score; there are: accuracy"):
        made_up(curve("softmax", (0.1, 0.2, 0.1)), score="BLEU").table()


# Files


@pytest.fixture
def comparison() -> Comparison:
    outcomes = curve("softmax", (0.3, 0.9, 0.4)) | curve("a_b|c", (0.2, 0.8, 0.1))
    refused = (Refused(values={KIND: "linformer"}, reason="is not causal"),)
    return made_up(outcomes, refused=refused)


def test_csv_is_the_records(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(comparison.table()))))
    assert [row[KIND] for row in rows] == ["softmax", "a_b|c"]
    assert float(rows[0]["test"]) == comparison.table()[0]["test"]
    assert rows[0]["difference"] == ""


def test_markdown_and_latex_have_the_same_cells(comparison: Comparison) -> None:
    columns, rows = readable(comparison)
    markdown, latex = to_markdown(comparison), to_latex(comparison)
    assert markdown.splitlines()[0].count("|") == len(columns) + 1
    assert "a_b\\|c" in markdown
    assert f"- {KIND}=linformer: refused: is not causal" in markdown
    assert "a\\_b|c" in latex
    assert latex.count(" & ") == (len(columns) - 1) * (len(rows) + 1)


def test_all_rows_have_the_same_keys(comparison: Comparison) -> None:
    first, *others = comparison.table()
    assert all(list(record) == list(first) for record in others)


def test_the_figure_shows_the_numbers_of_the_table() -> None:
    outcomes = {
        (kind, lr, seed): finished(score - lr + seed / 100, score + seed / 100)
        for kind, score in (("softmax", 0.9), ("elu", 0.5))
        for lr in (0.1, 0.2, 0.3)
        for seed in range(2)
    }
    comparison = made_up(outcomes | {("diverging", 0.1, 0): DIVERGED})
    scores, curves = comparison.figure().axes
    assert [label.get_text() for label in scores.get_yticklabels()] == [
        "softmax",
        "elu",
        "diverging",
    ]
    assert scores.get_xlabel() == "test accuracy"
    drawn = [np.asarray(line.get_xdata(), dtype=float) for line in scores.lines]
    means = [float(xs[0]) for xs in drawn if len(xs) == 1]
    assert means == [record["test"] for record in comparison.table()[:2]]
    for row, line in zip(comparison.rows[:2], curves.lines[::2], strict=False):
        assert np.asarray(line.get_ydata(), dtype=float).tolist() == list(
            row.curve("training.lr").values()
        )
    assert [label.get_text() for label in curves.get_xticklabels()] == ["0.1", "0.2", "0.3"]


@pytest.mark.parametrize("kind", ["[cls] x", "x [/INST]"])
def test_brackets_of_a_value_are_printed(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    _print_table(made_up({(kind, 0.1, 0): finished(0.5, 0.5)}))
    assert kind in capsys.readouterr().out


def test_nothing_is_ranked_without_scores_of_the_baseline() -> None:
    outcomes: Outcomes = {("softmax", 1e-3, seed): DIVERGED for seed in range(3)}
    for kind, score in (("elu", 0.5), ("bigbird", 0.6)):
        outcomes |= {(kind, 1e-3, seed): finished(0.5, score + seed / 100) for seed in range(3)}
    assert [record["rank"] for record in made_up(outcomes).table()] == [None] * 3


def test_a_better_value_with_fewer_seeds_is_named_and_its_row_not_ranked() -> None:
    outcomes = curve("softmax", (0.3, 0.5, 0.9)) | {("softmax", 1e-3, 3): finished(0.5, 0.4)}
    comparison = made_up(outcomes)
    (record,) = comparison.table()
    assert (record[LR], record["rank"], comparison.best()) == ("0.001", None, None)
    assert "a value with fewer seeds is better on them" in to_markdown(comparison)


def test_intervals_of_differences_need_three_common_seeds() -> None:
    outcomes: Outcomes = {("softmax", 1e-3, s): finished(0.5, 0.5 + s / 50) for s in range(2)}
    outcomes |= {("elu", 1e-3, s): finished(0.5, 0.6 + s * s / 50) for s in range(4)}
    columns, rows = readable(made_up(outcomes))
    assert rows[0][columns.index("difference")] == "+0.100"
