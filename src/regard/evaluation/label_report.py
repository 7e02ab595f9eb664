"""Scores of labels, as a page: precision, recall, F1, calibration, confident mistakes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from regard.config import to_toml
from regard.evaluation.evaluate import save_rows
from regard.evaluation.report import render_page
from regard.evaluation.tasks import Prediction
from regard.files import write_file
from regard.metrics import DRAWS, Interval, accuracy, confusion, macro_f1, numbered, wilson
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.uncertainty.metrics import calibration_error

BINS = 10
"""Bins of confidence in the calibration."""
SHOWN_LABELS = 30
"""Labels in the tables of a page: the most frequent ones."""
SHOWN_MISTAKES = 30


@dataclass(frozen=True, kw_only=True)
class LabelScore:
    """Scores of one label; precision or recall is None if its denominator is zero."""

    label: str
    true: int
    """Rows with this label."""
    precision: Interval | None
    recall: Interval | None
    f1: Interval


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Predictions of similar confidence."""

    low: float
    n: int
    confidence: float
    """Mean confidence."""
    accuracy: Interval


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong prediction."""

    text: str
    where: str
    label: str
    predicted: str
    confidence: float


@dataclass(frozen=True, kw_only=True)
class ClassificationReport:
    """Content of the page that scores a classification run."""

    title: str
    n: int
    accuracy: Interval
    macro_f1: Interval
    labels: Sequence[LabelScore]
    """The most frequent labels."""
    n_labels: int
    confusion: Int[np.ndarray, "shown shown"]
    """A row for each true label shown, a column for each predicted one."""
    bins: Sequence[Bin]
    calibration_error: float
    """Expected calibration error (Naeini et al., 2015): mean of |accuracy - confidence| over the
    bins, weighted by their rows."""
    mistakes: Sequence[Mistake]
    """The most confident ones first."""
    unseen: Sequence[str]
    """Labels that the model doesn't have."""
    configuration: str

    def html(self) -> str:
        """Return a self-contained page."""
        return render_page("label_report.html", report=self)

    def save(self, path: Path) -> None:
        """Write the page."""
        write_file(path, self.html().encode())


def classification_report(
    run: Run, examples: Sequence[Example], predictions: Sequence[Prediction]
) -> ClassificationReport:
    """Score predicted labels against those of examples."""
    true = [example.answer or "" for example in examples]
    predicted = [prediction.text for prediction in predictions]
    names, counts = confusion(predicted, true)
    order = np.argsort(-counts.sum(1), kind="stable")[:SHOWN_LABELS]
    correct = [p == t for p, t in zip(predicted, true, strict=True)]
    known = set(getattr(run.recipe.head, "labels", ()))
    scores = label_scores(predicted, true, seed=run.recipe.seed)
    return ClassificationReport(
        title=f"{run.path.name}: {len(examples)} rows",
        n=len(examples),
        accuracy=accuracy(correct),
        macro_f1=macro_f1(predicted, true, seed=run.recipe.seed),
        labels=[scores[i] for i in order],
        n_labels=len(names),
        confusion=counts[np.ix_(order, order)],
        bins=calibration(predictions, true),
        calibration_error=calibration_error(
            [p.probability for p in predictions], correct, bins=BINS
        ),
        mistakes=most_confident_mistakes(examples, predictions)[:SHOWN_MISTAKES],
        unseen=[name for name in names if name not in known],
        configuration=to_toml(run.recipe),
    )


def label_scores(
    predicted: Sequence[str], true: Sequence[str], *, seed: int = 0
) -> list[LabelScore]:
    """Return precision, recall and F1 of each label, in order.

    Intervals are Wilson's for precision and recall, and bootstrapped over the rows for F1.

    Raises:
        ValueError: there isn't one prediction for each row.
    """
    names, pairs = numbered(predicted, true)
    _, counts = confusion(predicted, true)
    right, said, there = counts.diagonal(), counts.sum(0), counts.sum(1)
    drawn = _f1_draws(pairs, len(names), seed)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    f1 = 2 * right / (said + there)
    return [
        LabelScore(
            label=name,
            true=int(there[i]),
            precision=wilson(int(right[i]), int(said[i])) if said[i] else None,
            recall=wilson(int(right[i]), int(there[i])) if there[i] else None,
            f1=Interval(float(f1[i]), float(low[i]), float(high[i])),
        )
        for i, name in enumerate(names)
    ]


def _f1_draws(pairs: Int[np.ndarray, "rows 2"], n_labels: int, seed: int) -> np.ndarray:
    """Return the F1 of each label in resampled rows: 0 if a label is absent from a draw."""
    rng = np.random.default_rng(seed)
    drawn = np.empty((DRAWS, n_labels), dtype=np.float32)
    for row in drawn:
        predicted, true = pairs[rng.integers(0, len(pairs), len(pairs))].T
        seen = np.bincount(predicted, minlength=n_labels) + np.bincount(true, minlength=n_labels)
        right = np.bincount(true[predicted == true], minlength=n_labels)
        row[:] = 2 * right / np.maximum(seen, 1)
    return drawn


def calibration(predictions: Sequence[Prediction], true: Sequence[str]) -> list[Bin]:
    """Return mean confidence and accuracy of predictions in bins of equal width, none empty."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for prediction, label in zip(predictions, true, strict=True):
        number = min(int(prediction.probability * BINS), BINS - 1)
        bins[number].append((prediction.probability, prediction.text == label))
    return [
        Bin(
            low=number / BINS,
            n=len(inside),
            confidence=sum(confidence for confidence, _ in inside) / len(inside),
            accuracy=accuracy([correct for _, correct in inside]),
        )
        for number, inside in enumerate(bins)
        if inside
    ]


def most_confident_mistakes(
    examples: Sequence[Example], predictions: Sequence[Prediction]
) -> list[Mistake]:
    """Return the wrong predictions, the most confident first."""
    wrong = [
        Mistake(
            text=example.text if example.second is None else f"{example.text} | {example.second}",
            where=example.where,
            label=example.answer or "",
            predicted=prediction.text,
            confidence=prediction.probability,
        )
        for example, prediction in zip(examples, predictions, strict=True)
        if prediction.text != example.answer
    ]
    return sorted(wrong, key=lambda mistake: -mistake.confidence)


def save_labels(examples: Sequence[Example], predictions: Sequence[Prediction], path: Path) -> None:
    """Write predictions: with confidences to .jsonl or .csv, else the labels alone, one a line."""
    rows = [
        {"where": e.where, "text": e.text, "predicted": p.text, "confidence": p.probability}
        | ({} if e.answer is None else {"label": e.answer})
        for e, p in zip(examples, predictions, strict=True)
    ]
    save_rows(rows, path)
