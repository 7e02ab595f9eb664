"""Training on rows of numbers as tokens."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from regard.data import IGNORE
from regard.models.builders import LanguageModel
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.probes import number_tokenizer
from regard.training.plan import Plan, plan_run
from regard.training.sources.probe import labeled_rows

Numbers = Int[np.ndarray, "rows length"]


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
