"""All tasks. Imports no torch."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias, get_args

from regard.errors import UserError
from regard.tasks.casing import CasingConfig
from regard.tasks.classification import ClassificationConfig
from regard.tasks.entailment import EntailmentConfig
from regard.tasks.examples import Example
from regard.tasks.probes import ProbeConfig
from regard.tasks.retrieval import RetrievalConfig
from regard.tasks.rows import Rows, check_rows
from regard.tasks.split import TextTaskConfig
from regard.tasks.summaries import SummariesConfig
from regard.tasks.tables import TableConfig
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

TEXT_TASKS = tuple(str(config.__struct_config__.tag) for config in get_args(TextTask))
"""Names of tasks that read a user's rows."""


def read_rows(
    task: TextTaskConfig, path: Path, table: TableConfig, *, label_required: bool = True
) -> Rows:
    """Read a user's rows of a task from a table or from lines; for casing, any .txt file has some.

    Raises:
        UserError: the file can't be read, a row is bad and not skipped, or no row is good.
    """
    rows = task.read(path, table, label_required=label_required)
    check = partial(check_example, task)
    return check_rows(rows, check, path, skip_bad=table.skip_bad)


def check_examples(task: TextTaskConfig, examples: Sequence[Example]) -> None:
    """Raise for examples of another task.

    Raises:
        UserError: names the first of them.
    """
    for example in examples:
        check_example(task, example)


def check_example(task: TextTaskConfig, example: Example) -> None:
    """Raise for an example of another task.

    Raises:
        UserError: names its place.
    """
    if example.turns:
        raise UserError(
            f"{example.where}: has several turns, which are for `train questions` and "
            "`finetune`; give one question and one answer"
        )
    task.check(example)
