"""The figure shows the numbers of the table."""

import numpy as np

from tiny_comparisons import DIVERGED, finished, made_up


def test_scores_and_curves() -> None:
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
