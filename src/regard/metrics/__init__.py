"""Pure functions from predictions to numbers, with intervals."""

from regard.metrics.answers import (
    accuracy,
    auroc,
    bits_per_character,
    exact_match,
    perplexity,
    risk_coverage,
)
from regard.metrics.classes import confusion, macro_f1
from regard.metrics.intervals import Interval, bootstrap, wilson
from regard.metrics.overlap import Score, bleu, chrf, rouge
from regard.metrics.ranking import mean_reciprocal_rank, ranks, recall_at
from regard.metrics.tags import tag_accuracy, tag_macro_f1

__all__ = [
    "Interval",
    "Score",
    "accuracy",
    "auroc",
    "bits_per_character",
    "bleu",
    "bootstrap",
    "chrf",
    "confusion",
    "exact_match",
    "macro_f1",
    "mean_reciprocal_rank",
    "perplexity",
    "ranks",
    "recall_at",
    "risk_coverage",
    "rouge",
    "tag_accuracy",
    "tag_macro_f1",
    "wilson",
]
