"""Probes, which draw their own rows of ids."""

from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Int

from regard.data.batch import RowFormat, WeightedDataset
from regard.data.supervised import LabeledTokens
from regard.errors import UserError
from regard.models.head_config import ReconstructionHeadConfig
from regard.runs.recipe import Recipe
from regard.runs.run import Run, describe_origin
from regard.tasks.mad import CompressionConfig
from regard.tasks.probes import (
    ProbeConfig,
    as_tokens,
    draw_probe,
    draw_probe_test,
    number_tokenizer,
)
from regard.text.tokenizer import Tokenizer
from regard.training.sources.base import Datasets, Prepared
from regard.training.sources.examples import TaskSource

Rows: TypeAlias = Int[np.ndarray, "rows length"]

PROBE_ROWS = 100_000
"""Number of training rows of a probe, each drawn independently."""


class ProbeSource(TaskSource):
    """Rows of ids, each of which is a token."""

    unread = ("data.", "objective.")

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Check that the model reads rows of the probe's length."""
        task = self.task_of(recipe)
        assert isinstance(task, ProbeConfig)
        if tokenizer is not None:
            raise own_rows_only(self.stage)
        check_probe(recipe, task)
        return Prepared(
            recipe=recipe,
            tokenizer=number_tokenizer(task.vocabulary),
            origin=describe_origin(self.stage, (), ()),
            datasets=lambda run: _datasets(run, task),
        )


def own_rows_only(task: str) -> UserError:
    """Return the error of a probe with data of other kinds."""
    return UserError(
        f"task.kind={task}: is a probe, which makes its own rows and tokens; leave out files, "
        "--tokenizer and --from"
    )


def check_probe(recipe: Recipe, task: ProbeConfig) -> None:
    """Raise unless the model of a recipe can learn a probe, and reads rows of its length.

    Raises:
        UserError: names what to set instead.
    """
    kind = task.__struct_config__.tag
    if isinstance(task, CompressionConfig):
        if not isinstance(recipe.head, ReconstructionHeadConfig):
            raise UserError(
                "task.kind=compression: requires a reconstruction from one hidden state: set "
                "head.kind=reconstruction"
            )
    elif not recipe.continues_texts:
        raise UserError(
            f"task.kind={kind}: requires a model with a prediction at each position: set "
            "model.kind=decoder, rnn or fixed-window, and head.kind=lm"
        )
    rows = draw_probe(task, recipe.seed, 1), draw_probe_test(task, recipe.seed, 1)
    longest = max(ids.shape[1] for ids, _ in rows)
    if longest > recipe.model.context_length:
        raise UserError(
            f"task.kind={kind}: its rows take {longest} tokens, but model.context_length is "
            f"{recipe.model.context_length}; set a shorter task, or a larger model.context_length"
        )


def _datasets(run: Run, task: ProbeConfig) -> Datasets:
    ids, labels = as_tokens(draw_probe(task, run.recipe.seed, PROBE_ROWS), run.tokenizer)
    return labeled_rows(run, ids, labels)


def labeled_rows(run: Run, ids: Rows, labels: Rows) -> Datasets:
    """Return a dataset of rows of equal length with a label at each position; none is held out."""
    format = RowFormat(ids.shape[1], run.tokenizer.special.padding)
    dataset = LabeledTokens(list(zip(ids, labels, strict=True)), format)
    return Datasets(training=[WeightedDataset(dataset)])
