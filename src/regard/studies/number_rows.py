"""Rows of numbers: training on them as tokens, and moods that depend on the weather."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data import IGNORE
from regard.models.builders import LanguageModel
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.text.tokenizer import number_tokenizer
from regard.training.plan import Plan, plan_run
from regard.training.sources.probe import labeled_rows

Numbers = Int[np.ndarray, "rows length"]
SPAN = 3
"""Number of days that a mood depends on."""
Weather = Bool[np.ndarray, "rows days"]
"""Whether each day is sunny."""


def plan_numbers(
    recipe: Recipe, origin: dict[str, Any], size: int, ids: Numbers, labels: Numbers
) -> Plan:
    """Plan training on rows of numbers below `size`, with a label or IGNORE at each position.

    For a language model, labels are numbers too; for a classifier, classes.
    """
    run = Run.new(Path("unused"), recipe, number_tokenizer(size), origin)
    if isinstance(run.model, LanguageModel):
        labels = tokens_of(run, labels)
    return plan_run(run, labeled_rows(run, tokens_of(run, ids), labels), "training")


def tokens_of(run: Run, numbers: Numbers) -> Numbers:
    """Return the token ids of numbers; IGNORE is kept."""
    (first,) = run.tokenizer.encode("0")
    return np.where(numbers == IGNORE, IGNORE, numbers + first)


def accuracy(
    logits: Float[Tensor, "rows length classes"], labels: Int[Tensor, "rows length"]
) -> float:
    """Return the share of correct predictions; labels that are IGNORE don't count."""
    hits = logits.argmax(-1) == labels
    return float(hits[labels != IGNORE].double().mean())


def best(ahead: int) -> float:
    """Return the highest accuracy that is possible with the weather up to today."""
    good = np.array([2 * sum(days) > SPAN for days in product((0, 1), repeat=SPAN)])
    known = SPAN - min(ahead, SPAN)
    share = good.reshape(2**known, -1).mean(1)  # for each weather of the known days
    return float(np.maximum(share, 1 - share).mean())


def draw_weather(rows: int, days: int, *seed: int) -> Weather:
    """Return random weather, an independent fair coin flip for each day."""
    return np.random.default_rng(seed).random((rows, days)) < 0.5


def moods(sunny: Weather, ahead: int) -> Int[np.ndarray, "rows days"]:
    """Return 1 where at least two of the three days up to `ahead` days later are sunny, else 0.

    IGNORE if one of the three days is outside of the row.
    """
    three = np.lib.stride_tricks.sliding_window_view(sunny, SPAN, axis=1).sum(-1)
    first = np.arange(sunny.shape[1]) + ahead - SPAN + 1  # of each day's three
    inside = (first >= 0) & (first < three.shape[1])
    labels = np.full(sunny.shape, IGNORE)
    labels[:, inside] = 2 * three[:, first[inside]] > SPAN
    return labels
