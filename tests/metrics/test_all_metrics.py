"""What all metrics share: seeds of their intervals, perfect predictions, and refused input."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from regard.metrics import (
    Interval,
    accuracy,
    auroc,
    auroc_interval,
    bleu,
    bootstrap,
    chrf,
    confusion,
    macro_f1,
    mean_reciprocal_rank,
    perplexity,
    recall_at,
    rouge,
    tag_accuracy,
    tag_macro_f1,
    wilson,
)

LABELS = (list("abbccab"), list("abccbac"))
# Texts of one word to seven.
TAGS = tuple([[tag] * n for n, tag in enumerate(side, 1)] for side in LABELS)
TEXTS = tuple([" ".join("abcdefghijkl"[i : 3 * i + 1]) for i in range(j, j + 6)] for j in (0, 1))
RANKS = np.array([1, 3, 2, 8, 5])
NO_RANKS = np.array([], dtype=int)

RESAMPLED: dict[str, Callable[..., object]] = {
    "bootstrap": partial(bootstrap, RANKS, np.mean),
    "perplexity": partial(perplexity, [10.0, 35.0, 22.0, 8.0], [5, 20, 9, 6]),
    "macro F1": partial(macro_f1, *LABELS),
    "tag accuracy": partial(tag_accuracy, *TAGS),
    "macro F1 of tags": partial(tag_macro_f1, *TAGS),
    "mean reciprocal rank": partial(mean_reciprocal_rank, RANKS),
    "ROUGE": partial(rouge, *TEXTS),
    "BLEU": partial(bleu, *TEXTS),
    "chrF": partial(chrf, *TEXTS),
}


@pytest.mark.parametrize("metric", RESAMPLED.values(), ids=RESAMPLED)
def test_the_seed_decides_the_interval(metric: Callable[..., object]) -> None:
    first = metric(seed=1)
    assert metric(seed=1) == first
    assert any(metric(seed=seed) != first for seed in range(2, 6))


def test_perfect_predictions_score_1_without_a_doubt() -> None:
    perfect = Interval(1.0, 1.0, 1.0)
    assert macro_f1(LABELS[1], LABELS[1]) == perfect
    assert tag_accuracy(TAGS[1], TAGS[1]) == tag_macro_f1(TAGS[1], TAGS[1]) == perfect
    assert mean_reciprocal_rank(np.ones(9, dtype=int)) == perfect


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "wilson, nothing": (lambda: wilson(0, 0), "at least one trial"),
    "accuracy, nothing": (lambda: accuracy([]), "at least one trial"),
    "recall, nothing": (lambda: recall_at(NO_RANKS, 1), "at least one trial"),
    "bootstrap, nothing": (lambda: bootstrap([], np.mean), "at least one example"),
    "MRR, nothing": (lambda: mean_reciprocal_rank(NO_RANKS), "at least one example"),
    "macro F1, nothing": (lambda: macro_f1(list[str](), list[str]()), "at least one example"),
    "macro F1, uneven": (lambda: macro_f1(["a"], ["a", "b"]), "argument 2 is longer"),
    "confusion, uneven": (lambda: confusion(["a"], ["a", "b"]), "argument 2 is longer"),
    "AUROC, no positive": (lambda: auroc([], [1.0]), "both positives and negatives"),
    "AUROC, no negative": (lambda: auroc([1.0], []), "both positives and negatives"),
    "AUROC, one positive": (lambda: auroc_interval([1.0], [0.0, 0.5]), "two positives and two"),
    **{
        f"{name}, nothing": (partial(metric, [], []), "at least one")
        for name, metric in {"tags": tag_accuracy, "tags' F1": tag_macro_f1}.items()
    },
    **{
        f"{name}, uneven": (partial(metric, [["a"]], [["a"], ["b"]]), "argument")
        for name, metric in {"tags": tag_accuracy, "tags' F1": tag_macro_f1}.items()
    },
    **{
        f"{metric.__name__} of {n} references": (partial(metric, texts, ["a"] * n), says)
        for metric in (rouge, bleu, chrf)
        for texts, n, says in (
            ([], 0, "at least one example"),
            (["a"], 0, "shorter|longer|don't match"),
            (["a"], 2, "shorter|longer|don't match"),
        )
    },
}


@pytest.mark.parametrize(("call", "says"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
