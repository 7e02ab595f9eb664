"""Pure functions from predictions to numbers, with intervals."""

from regard.metrics.answers import accuracy, auroc, exact_match, perplexity, risk_coverage
from regard.metrics.intervals import Interval, bootstrap, wilson

__all__ = [
    "Interval",
    "accuracy",
    "auroc",
    "bootstrap",
    "exact_match",
    "perplexity",
    "risk_coverage",
    "wilson",
]
