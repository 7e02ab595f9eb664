"""Edits of a model while it runs: ablate, cut, patch or steer any place of any model."""

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

__all__ = [
    "Cut",
    "Edit",
    "Edits",
    "Mean",
    "Patch",
    "Steer",
    "Zero",
    "cut",
    "load_edit",
    "mean",
    "patch",
    "steer",
    "zero",
]
