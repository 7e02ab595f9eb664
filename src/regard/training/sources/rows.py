"""Rows of a file, for a task."""

import dataclasses
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from regard.errors import UserError
from regard.files import fingerprint_of
from regard.runs.recipe import Recipe
from regard.runs.recipes import TASKS
from regard.runs.run import Run
from regard.tasks.examples import Example, require_answers
from regard.tasks.labels import LabelTaskConfig
from regard.tasks.registry import read_rows
from regard.tasks.rows import HELD_OUT, count_duplicates, pack_rows, split_rows
from regard.tasks.split import TextTaskConfig
from regard.tasks.tables import is_table
from regard.text.config import BytePairsConfig
from regard.text.tokenizer import Tokenizer
from regard.training.sources.base import Datasets, Prepared
from regard.training.sources.examples import TaskSource, check_head, prepare_examples


class RowSource(TaskSource):
    """The rows of a file, with held-out rows or those of another file to score."""

    unread = (*TaskSource.unread, "objective.")

    def __init__(self, task: str, path: Path, test: Path | None = None) -> None:
        """`test` is a file for `regard evaluate`, instead of held-out rows."""
        super().__init__(task)
        self._path, self._test = path, test
        if not isinstance(TASKS[task].tokenizer, BytePairsConfig):
            # Held-out and later rows have words that training lacks.
            tokenizer = replace(TASKS[task].tokenizer, unknown="unk")
            self.usual = replace(TASKS[task], tokenizer=tokenizer)

    def prepare(
        self, recipe: Recipe, tokenizer: Tokenizer | None, out: Path, start: Run | None
    ) -> Prepared:
        """Read and split the rows; a tokenizer is trained on those to train on."""
        task, table = self.task_of(recipe), recipe.data.table
        assert isinstance(task, TextTaskConfig)
        rows = read_rows(task, self._path, table)
        require_answers(rows.examples, task.words)
        found = {name: rows.columns[name] for name in ("text", "label") if name in rows.columns}
        table = replace(table, **found)
        recipe = replace(recipe, data=replace(recipe.data, table=table))  # for later files too
        if self._test is None:
            training, held_out = split_rows(rows.examples, table.test, recipe.seed, task.stratum)
        else:
            training = rows.examples
            if not is_table(self._test, table, trained=True):  # lines have no names
                table = replace(table, text="", second="", label="")
            held_out = require_answers(read_rows(task, self._test, table).examples, task.words)
        facts: dict[str, Any] = {
            "table": rows.format,
            "skipped_rows": len(rows.bad),
            "training_rows": len(training),
            "test_rows": len(held_out),
            "test_rows_with_a_text_in_training": count_duplicates(training, held_out),
        }
        if isinstance(task, LabelTaskConfig):
            facts |= _label_facts(self._path, training, held_out)
        check_head(recipe, task)
        examples = prepare_examples(recipe, training, tokenizer)

        def datasets(run: Run) -> Datasets:
            files = {HELD_OUT: pack_rows(held_out)} if held_out else {}
            return dataclasses.replace(examples.datasets(run), facts=facts, files=files)

        scored = [[row.text, row.second, row.answer] for row in held_out]
        origin = examples.origin | {"test": fingerprint_of(msgspec.json.encode(scored))}
        return dataclasses.replace(examples, origin=origin, datasets=datasets)


def _label_facts(
    path: Path, training: Sequence[Example], held_out: Sequence[Example]
) -> dict[str, Any]:
    """Return counts of labels.

    Raises:
        UserError: all rows have one label.
    """
    labels = Counter(example.answer for example in training)
    if len(labels) == 1:
        raise UserError(
            f"{path}: all rows have the label {next(iter(labels))!r}, so nothing can be learned; "
            "choose another column by --label"
        )
    if len(labels) == len(training) >= 10:
        warnings.warn(
            f"{path}: each row has a label of its own, so none can be learned for other rows; "
            "choose another column by --label",
            stacklevel=2,
        )
    return {
        "labels": len(labels),
        "labels_of_a_single_row": sum(count == 1 for count in labels.values()),
        "test_rows_with_a_label_absent_from_training": sum(
            row.answer not in labels for row in held_out
        ),
    }
