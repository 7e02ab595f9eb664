"""Base of text tasks, and disjoint training and test examples."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar, TypeAlias, TypeVar

import msgspec

from regard.config import Config, Positive, Seed
from regard.errors import UserError
from regard.metrics import Interval, accuracy, exact_match
from regard.tasks.examples import TEXTS, Example, Words, parse_json, parse_lines, parse_tsv
from regard.tasks.rng import shuffled
from regard.tasks.rows import LINES, Rows
from regard.tasks.tables import TableConfig, is_table, read_table_rows
from regard.text.corpus import Document

Scores: TypeAlias = dict[str, Interval]
"""Name → score."""
Answers: TypeAlias = dict[str, list[str]]
"""Name of a baseline → its answers to test examples."""

_T = TypeVar("_T", bound=Hashable)
_PATIENCE = 1000
"""Number of consecutive draws without a new example after which drawing gives up."""


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """Examples of a task; no test text is in training."""

    training: tuple[Example, ...]
    test: tuple[Example, ...]


class TextTaskConfig(Config, frozen=True):
    """Base of tasks whose examples are texts with answers."""

    words: ClassVar[Words] = TEXTS
    """Names of text and answer in error messages."""
    training: Positive = 8000
    """Number of training examples."""
    test: Positive = 500
    """Number of test examples, none of which is in training."""
    seed: Seed = 0
    """Seed of the task's people or language; its examples also depend on the run's seed."""

    def make(self, seed: int) -> Split:
        """Make the examples, from this configuration and the run's seed.

        Raises:
            UserError: the task has fewer different examples.
        """
        raise NotImplementedError

    def documents(self) -> list[Document]:
        """Return texts for joint training with the examples, in the shares of the objective."""
        return []

    def score(self, answered: Sequence[str], right: Sequence[str], seed: int) -> Scores:
        """Score answers against the right ones; `seed` is for bootstrap intervals."""
        return exact_matches(answered, right)

    def baselines(self, training: Sequence[Example], test: Sequence[Example]) -> Answers:
        """Answer test examples without a model, given those for training."""
        return {}

    def read(self, path: Path, table: TableConfig, *, label_required: bool = True) -> Rows:
        """Read a user's rows from a table, or from lines without a header.

        Raises:
            UserError: the file can't be read or is empty, or a column is missing.
        """
        if is_table(path, table, trained=not label_required):
            return read_table_rows(path, table, label_required=label_required)
        return self.read_lines(path)

    def read_lines(self, path: Path) -> Rows:
        """Read a user's rows from lines without a header.

        Raises:
            UserError: the file can't be read or is empty.
        """
        of_tsv, of_json = (partial(parse, words=self.words) for parse in (parse_tsv, parse_json))
        return Rows(*parse_lines(path, of_tsv, of_json, self.words), LINES)

    def stratum(self, example: Example) -> str:
        """Return the group of an example; a share of each group is held out. Default: one group."""
        return ""

    def check(self, example: Example) -> None:
        """Check that an example fits the task.

        Raises:
            UserError: it doesn't; the message names its place.
        """


def exact_matches(answered: Sequence[str], right: Sequence[str]) -> Scores:
    """Return the share of answers that are the right ones."""
    pairs = zip(answered, right, strict=True)
    return {"exact match": accuracy([exact_match(a, r) for a, r in pairs])}


def draw_distinct(task: str, make: Callable[[Random], _T], draw: Random, n: int) -> list[_T]:
    """Draw n different examples of a task, or their components, in random order.

    They are shuffled, because frequent ones are drawn early and splits should be alike.

    Raises:
        UserError: there are fewer.
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
    """Return pairs of text and answer as examples, the first `training` of them for training."""
    return numbered(task, [Example(text=text, answer=answer) for text, answer in pairs], training)


def numbered(task: str, questions: Sequence[Example], training: int) -> Split:
    """Number examples for messages, and split off the first `training` for training."""
    examples = tuple(
        msgspec.structs.replace(question, where=f"{task} example {number}")
        for number, question in enumerate(questions, start=1)
    )
    return Split(training=examples[:training], test=examples[training:])
