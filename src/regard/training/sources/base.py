"""The base class of sources, the split of held-out items, and requirements of recipes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from regard.data.batch import Dataset, WeightedDataset
from regard.errors import UserError
from regard.models.head_config import LMHeadConfig, MaskedLMHeadConfig
from regard.runs.recipe import Recipe, TrainingConfig
from regard.runs.recipes import find_recipe
from regard.runs.run import Run
from regard.runs.start import require_same, with_start
from regard.tasks.examples import Example
from regard.text.corpus import Document
from regard.text.packed import TextSpec
from regard.text.tokenizer import Tokenizer
from regard.training.loggers import CheckpointReport, no_report

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Datasets to train and validate a model."""

    training: Sequence[WeightedDataset]
    held_out: Sequence[Dataset] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts about the data, by name."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Additional files of the run, by name."""
    at_checkpoint: CheckpointReport = no_report
    """Returns more values for the record of a checkpoint."""
    indexed: Sequence[Document] = ()
    """Text to index in the run's folder after the training."""
    questions: Sequence[Example] = ()
    """Answered questions in the training data."""
    packed: TextSpec | None = None
    """Text whose tokens are packed in the run's folder."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Recipe, tokenizer and data of a source that has been read, for a new run."""

    recipe: Recipe
    """The recipe with values determined by the data, such as labels."""
    tokenizer: Tokenizer
    origin: dict[str, Any]
    """How the run is made: stage, inputs and their fingerprint."""
    datasets: Callable[[Run], Datasets]


class Source(ABC):
    """A source of training data."""

    stage: str
    """Name of the training, for origin.json and the progress bar."""
    usual: Recipe | str = "default"
    """The recipe if none is chosen."""
    unread: tuple[str, ...] = ()
    """Beginnings of the settings that this source doesn't read."""

    def choose_recipe(
        self, recipe: Recipe | str | None, settings: Sequence[str], start: Run | None
    ) -> Recipe:
        """Return a recipe with settings, by default the usual one for this source and start.

        Raises:
            UserError: the recipe doesn't fit the source or the start.
        """
        if recipe is None:
            recipe = with_start(find_recipe(self.usual), start) if start else self.usual
        chosen = find_recipe(recipe, settings)
        if start:
            require_same(start, chosen, ("model", "tokenizer"))
        return chosen

    @abstractmethod
    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Check the recipe and read the source; without `tokenizer`, train one on it.

        Raises:
            UserError: recipe, source and start don't fit together.
        """


def hold_out(items: Sequence[T], recipe: Recipe) -> tuple[list[T], list[T]]:
    """Split items into those to train on and the share that is held out, drawn by the seed."""
    n = int(recipe.data.validation * len(items))
    order = np.random.default_rng([recipe.seed, 3]).permutation(len(items))
    held_out = set(order[:n].tolist())
    return (
        [item for i, item in enumerate(items) if i not in held_out],
        [item for i, item in enumerate(items) if i in held_out],
    )


# Requirements of settings and recipes

NO_EFFECT = "has no effect on this training; leave it out"


def unread_with(recipe: Recipe) -> tuple[str, ...]:
    """Return the beginnings of settings that no source reads with a recipe."""
    objective = recipe.objective
    is_read = {
        "data.blank_lines": recipe.data.documents == "lines",
        "objective.masking": objective.from_both_sides > 0,
        "objective.cloze_words": objective.clozes > 0,
        "objective.question_batch": objective.clozes + objective.questions > 0,
    }
    return tuple(name for name, read in is_read.items() if not read)


def refuse_settings(settings: Sequence[str], beginnings: tuple[str, ...], why: str) -> None:
    """Raise if a setting begins with one of the given texts.

    Raises:
        UserError: names the setting, and says why.
    """
    for setting in settings:
        if setting.startswith(beginnings):
            raise UserError(f"{setting}: {why}")


def require_no_task(recipe: Recipe) -> None:
    """Raise if the recipe has a task, by which its run would be scored.

    Raises:
        UserError: names the task.
    """
    if recipe.task is not None:
        kind = recipe.task.__struct_config__.tag
        raise UserError(
            f"task.kind={kind}: is learned by `regard train {kind}`; choose a recipe without a task"
        )


def require_continuing(recipe: Recipe) -> None:
    """Raise unless the model is a causal language model.

    Raises:
        UserError: names what to set instead.
    """
    if not recipe.continues_texts:
        family, head = (part.__struct_config__.tag for part in (recipe.model, recipe.head))
        raise UserError(
            f"model.kind={family} with head.kind={head}: requires a causal language model: set "
            "model.kind=decoder and head.kind=lm, or train on examples (`regard tasks`)"
        )


def require_objective(recipe: Recipe) -> None:
    """Raise unless the model's head can learn by the objective.

    Raises:
        UserError: names what to set instead.
    """
    head, objective = recipe.head, recipe.objective
    if isinstance(head, MaskedLMHeadConfig) and objective.from_the_left:
        raise UserError(
            "head.kind=masked-lm learns from masked texts: set objective.next_token=0 and "
            "objective.masked_tokens=1, or take --recipe masked"
        )
    if isinstance(head, LMHeadConfig) and objective.from_both_sides:
        raise UserError(
            "objective.masked_tokens and masked_autoencoding are for a model that reads both "
            "ways: set model.kind=encoder and head.kind=masked-lm, or take --recipe masked"
        )
    if not isinstance(head, MaskedLMHeadConfig):
        require_continuing(recipe)


def require_next_token(recipe: Recipe, data: str, otherwise: str) -> None:
    """Raise if the objective has other shares than that of next-token prediction.

    Args:
        data: what can't be used for them, with its verb.
        otherwise: what to do to use them.

    Raises:
        UserError: names what to set or do instead.
    """
    if recipe.objective.total > recipe.objective.next_token:
        raise UserError(
            f"{data} for objective.next_token alone; set next_token to 1 and the other shares to "
            f"0, or {otherwise}"
        )


def require_parent(config: TrainingConfig, has_parent: bool) -> None:
    """Raise if there are no trained weights for a configuration to adapt.

    Raises:
        UserError: names the field.
    """
    for name in ("lora", "freeze"):
        if getattr(config, name) and not has_parent:
            raise UserError(f"training.{name}: adapts trained weights; give them by --from")
