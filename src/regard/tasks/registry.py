"""All tasks. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from regard.errors import UserError
from regard.tasks.casing import CasingConfig
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.examples import Example, Examples, read_questions
from regard.tasks.labels import read_labeled
from regard.tasks.probes import ProbeConfig
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tables import TableConfig, TableExamples, is_table, read_table_examples
from regard.tasks.tagging import TaggingConfig
from regard.tasks.translation import TranslationConfig
from regard.tasks.world_questions import WorldQuestionsConfig

TextTask: TypeAlias = (
    CasingConfig
    | SummariesConfig
    | TranslationConfig
    | ClassificationConfig
    | TaggingConfig
    | EntailmentConfig
    | RetrievalConfig
    | WorldQuestionsConfig
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


def read_labeled_rows(
    path: Path, table: TableConfig, *, label_required: bool = True
) -> TableExamples:
    """Read texts and labels from a table, or from lines without a header, which may hold pairs.

    Raises:
        UserError: as `read_table_examples` and `read_labeled`.
    """
    if is_table(path, table):
        return read_table_examples(path, table, label_required=label_required)
    return TableExamples(read_labeled(path), (), "lines, no header")


def check_examples(config: TextTask, examples: Sequence[Example]) -> None:
    """Raise for examples of another task.

    Raises:
        UserError: names the first of them.
    """
    for example in examples:
        if example.turns:
            raise UserError(
                f"{example.where}: has several turns, which are for `train questions` and "
                "`finetune`; give one question and one answer"
            )
        config.check(example)
