"""Registry of all tasks. Doesn't import torch."""

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
    """Read a user's rows of a task from a table or from lines; casing also reads any .txt file.

    Raises:
        UserError: the file can't be read, a row is bad and not skipped, or no row is good.
    """
    rows = task.read(path, table, label_required=label_required)
    check = partial(check_example, task)
    return check_rows(rows, check, path, skip_bad=table.skip_bad)


def check_examples(task: TextTaskConfig, examples: Sequence[Example]) -> None:
    """Check that examples fit a task.

    Raises:
        UserError: one doesn't; the message names the place of the first.
    """
    for example in examples:
        check_example(task, example)


def check_example(task: TextTaskConfig, example: Example) -> None:
    """Check that an example fits a task.

    Raises:
        UserError: it doesn't; the message names its place.
    """
    if example.turns:
        raise UserError(
            f"{example.place}: has several turns, which are for `train questions` and "
            "`finetune`; give one question and one answer"
        )
    task.check(example)
