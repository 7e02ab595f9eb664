"""All tasks. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from regard.tasks.casing import CasingConfig
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.examples import Example, Examples, read_questions
from regard.tasks.probes import ProbeConfig
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tagging import TaggingConfig
from regard.tasks.translation import TranslationConfig

TextTask: TypeAlias = (
    CasingConfig
    | SummariesConfig
    | TranslationConfig
    | ClassificationConfig
    | TaggingConfig
    | EntailmentConfig
    | RetrievalConfig
)
"""Tasks whose examples are texts with answers."""

TaskConfig: TypeAlias = TextTask | ProbeConfig


def task_examples(config: TaskConfig, examples: Examples) -> list[Example]:
    """Return a user's examples of a task, which may be a file; for casing, any .txt file has some.

    Raises:
        UserError: a line is malformed, or there is no example.
    """
    if not isinstance(examples, str | Path):
        return list(examples)
    if isinstance(config, ProbeConfig):
        return read_questions(Path(examples))
    return config.read(Path(examples))


def check_examples(config: TextTask, examples: Sequence[Example]) -> None:
    """Raise for examples of another task.

    Raises:
        UserError: names the first of them.
    """
    for example in examples:
        config.check(example)
