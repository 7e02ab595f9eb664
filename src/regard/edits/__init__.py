"""Edits of a model while it runs: ablate, cut, patch or steer its tensors."""

from regard.edits.edit import (
    Cut,
    Edit,
    Edits,
    Mean,
    Patch,
    Steer,
    Zero,
    cut,
    load_edit,
    mean,
    patch,
    steer,
    zero,
)
from regard.edits.metrics import LogitDifference, Probability, logit_difference, probability

__all__ = [
    "Cut",
    "Edit",
    "Edits",
    "LogitDifference",
    "Mean",
    "Patch",
    "Probability",
    "Steer",
    "Zero",
    "cut",
    "load_edit",
    "logit_difference",
    "mean",
    "patch",
    "probability",
    "steer",
    "zero",
]
