"""Examples for training and for testing, with none in both."""

from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import TypeVar

import msgspec

from regard.config import Config, Positive, Seed
from regard.errors import UserError
from regard.tasks.examples import Example
from regard.tasks.rng import shuffled

_T = TypeVar("_T", bound=Hashable)
_PATIENCE = 1000
"""Draws in a row without a new example after which there are taken to be no more."""


class TextTaskConfig(Config, frozen=True):
    """Base of tasks whose examples are texts with answers."""

    training: Positive = 8000
    """Number of training examples."""
    test: Positive = 500
    """Number of test examples, none of which is in training."""
    seed: Seed = 0
    """Seed of the task's people or language; its examples also depend on the run's seed."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A task's examples; no text of the test stands in training."""

    training: tuple[Example, ...]
    test: tuple[Example, ...]


def draw_distinct(task: str, make: Callable[[Random], _T], draw: Random, n: int) -> list[_T]:
    """n different examples of a task, or whatever they are made from.

    They are shuffled, for those that are drawn often come early: any part is like any other.

    Raises:
        UserError: there aren't so many.
    """
    found: dict[_T, None] = {}
    repeats = 0
    while len(found) < n:
        made = make(draw)
        repeats = repeats + 1 if made in found else 0
        if repeats == _PATIENCE:
            raise UserError(
                f"{task}: training and test need {n} different examples, and there are about "
                f"{len(found)}: choose fewer"
            )
        found[made] = None
    return shuffled(draw, list(found))


def cut(task: str, pairs: Sequence[tuple[str, str]], training: int) -> Split:
    """Pairs of text and answer: so many for training, the others for the test."""
    return numbered(task, [Example(text=text, answer=answer) for text, answer in pairs], training)


def numbered(task: str, questions: Sequence[Example], training: int) -> Split:
    """Questions with their places: so many for training, the others for the test."""
    examples = tuple(
        msgspec.structs.replace(question, where=f"{task} example {number}")
        for number, question in enumerate(questions, start=1)
    )
    return Split(training=examples[:training], test=examples[training:])
