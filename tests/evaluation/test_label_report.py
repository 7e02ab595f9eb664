"""Scores of labels by hand, and the page that shows them."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans import plan_task
from regard.evaluation.label_report import (
    calibration,
    classification_report,
    label_scores,
    most_confident_mistakes,
    save_labels,
)
from regard.evaluation.tasks import Prediction
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.uncertainty.metrics import calibration_error
from tiny_tasks import task_recipe

labels = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abcd")), min_size=1)


def predictions(*pairs: tuple[str, float]) -> list[Prediction]:
    return [Prediction(text=text, probability=p) for text, p in pairs]


@given(pairs=labels)
def test_scores_are_those_of_their_definitions(pairs: list[tuple[str, str]]) -> None:
    said, true = zip(*pairs, strict=True)
    for score in label_scores(said, true):
        right = sum(s == t == score.label for s, t in pairs)
        n_said, n_true = said.count(score.label), true.count(score.label)
        assert score.true == n_true
        assert (score.precision is None) == (n_said == 0)
        assert (score.recall is None) == (n_true == 0)
        if score.precision and score.recall:
            p, r = score.precision.value, score.recall.value
            assert p == pytest.approx(right / n_said)
            assert r == pytest.approx(right / n_true)
            assert score.f1.value == pytest.approx(2 * p * r / (p + r) if right else 0)
        assert 0 <= score.f1.low <= score.f1.high <= 1


def test_calibration_by_hand() -> None:
    found = calibration(
        predictions(("a", 0.95), ("a", 0.91), ("b", 1.0), ("b", 0.5)), ["a", "b", "b", "a"]
    )
    assert [(one.low, one.n) for one in found] == [(0.5, 1), (0.9, 3)]
    assert found[1].confidence == pytest.approx((0.95 + 0.91 + 1.0) / 3)
    assert found[1].accuracy.value == pytest.approx(2 / 3)
    assert calibration_error([0.95, 0.91, 1.0, 0.5], [True, False, True, False]) == pytest.approx(
        (0.5 + 3 * abs(found[1].confidence - 2 / 3)) / 4
    )


def test_mistakes_are_ordered_by_confidence() -> None:
    rows = [Example(text=text, answer="a") for text in "xyz"]
    found = most_confident_mistakes(rows, predictions(("b", 0.6), ("a", 0.9), ("b", 0.8)))
    assert [(one.text, one.confidence) for one in found] == [("z", 0.8), ("x", 0.6)]


@pytest.fixture(scope="module")
def run() -> Run:
    return plan_task(Path("nowhere"), task_recipe("classification", "encoder, classification")).run


def test_the_page_shows_everything_and_escapes_it(run: Run) -> None:
    rows = [Example(text="<script>□</script>", answer="new"), Example(text="b", answer="positive")]
    report = classification_report(run, rows, predictions(("positive", 0.9), ("positive", 0.8)))
    page = report.html()
    assert "&lt;script&gt;□" in page
    assert "<script>" not in page
    for shown in ("Precision", "Recall", "F1", "Confusion", "Calibration", "mistakes"):
        assert shown in page
    assert list(report.unseen) == ["new"]
    assert report.accuracy.value == 0.5


def test_many_labels_give_a_page_of_the_most_frequent(run: Run) -> None:
    names = [str(i) for i in range(10_000)]
    rows = [Example(text="t", answer=name) for name in [*names, "7"]]
    said = predictions(*((name, 0.5) for name in [*names, "7"]))
    few = classification_report(run, rows[:300], said[:300])
    assert few.n_labels == 300
    assert few.confusion.shape == (30, 30)
    assert np.trace(few.confusion) == 30
    assert len(few.html()) < 100_000


@pytest.mark.parametrize("answer", ["a", None])
def test_predictions_carry_confidence(tmp_path: Path, answer: str | None) -> None:
    rows = [Example(text='x, "y"', answer=answer, where="a.csv:2")]
    said = predictions(("b", 0.75))
    for name in ("p.jsonl", "p.csv", "p.txt"):
        save_labels(rows, said, tmp_path / name)
    record = json.loads((tmp_path / "p.jsonl").read_text("utf-8"))
    assert record["confidence"] == 0.75
    assert record.get("label") == answer
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["text"], row["predicted"], row["confidence"]) == ('x, "y"', "b", "0.75")
    assert (tmp_path / "p.txt").read_text("utf-8") == "b\n"
