"""Plans of training for a task by its name: on a user's rows, or on the task's own examples."""

import dataclasses
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from regard.errors import UserError
from regard.runs.recipe import Recipe
from regard.runs.recipes import TASKS
from regard.runs.run import Run
from regard.runs.start import stage_recipe, start_recipe
from regard.tasks.examples import Example, Examples, require_answers
from regard.tasks.labels import LabelTaskConfig
from regard.tasks.probes import ProbeConfig
from regard.tasks.registry import read_rows
from regard.tasks.rows import HELD_OUT, count_duplicates, pack_rows, split_rows
from regard.tasks.split import TextTaskConfig
from regard.text.config import BytePairsConfig
from regard.text.corpus import Corpus
from regard.text.tokenizer import Tokenizer
from regard.training.plan import Plan
from regard.training.plan_task import plan_task


def plan_named_task(
    task: str,
    data: Corpus | Examples | None,
    out: str | Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
    tokenizer: Tokenizer | None = None,
    test: Path | None = None,
    start: Run | None = None,
) -> Plan:
    """Plan training for a task by its name, on a file, on examples or on the task's own.

    `start` is a run to begin with, whose tokenizer is used.

    Raises:
        UserError: the task doesn't fit the recipe or the data.
    """
    chosen = (
        start_recipe(start, task, recipe, settings)
        if start
        else stage_recipe(recipe or _usual_recipe(task, data), settings, "training")
    )
    kind = chosen.task and str(chosen.task.__struct_config__.tag)
    if chosen.task is None or kind != task:
        found = f"task.kind={kind}" if kind else "no task"
        raise UserError(
            f"train {task}: the recipe has {found}; set task.kind={task}, or leave --recipe out"
        )
    if data is None or isinstance(chosen.task, ProbeConfig):
        examples = None if data is None else ()  # for which a probe has no use
        return plan_task(Path(out), chosen, examples, tokenizer=tokenizer, start=start)
    if isinstance(data, str | Path):
        path = Path(data)
        return plan_rows(Path(out), chosen, path, test, tokenizer=tokenizer, start=start)
    given = list(cast("Sequence[Example]", data))
    answered = require_answers(given) if given else given
    return plan_task(Path(out), chosen, answered, tokenizer=tokenizer, start=start)


def _usual_recipe(task: str, data: Corpus | Examples | None) -> Recipe | str:
    """Return the recipe of a task; for a file, with a tokenizer that encodes all of its rows.

    Held-out and later rows have words that training lacks.
    """
    tokenizer = TASKS[task].tokenizer
    if not isinstance(data, str | Path) or isinstance(tokenizer, BytePairsConfig):
        return task
    encoding_all = msgspec.structs.replace(tokenizer, unknown="unk")
    return msgspec.structs.replace(TASKS[task], tokenizer=encoding_all)


def plan_rows(
    out: Path,
    recipe: Recipe,
    path: Path,
    test: Path | None,
    *,
    tokenizer: Tokenizer | None = None,
    start: Run | None = None,
) -> Plan:
    """Plan training on the rows of a file, with held-out rows or those of another file to score.

    Raises:
        UserError: as `plan_task`; or a row is bad, or all have one label.
    """
    task, table = recipe.task, recipe.data.table
    assert isinstance(task, TextTaskConfig)
    rows = read_rows(task, path, table)
    require_answers(rows.examples)
    if test is None:
        training, held_out = split_rows(rows.examples, table.test, recipe.seed, task.stratum)
    else:
        training = rows.examples
        held_out = require_answers(read_rows(task, test, table).examples)
    facts: dict[str, Any] = {
        "table": rows.format,
        "skipped_rows": len(rows.bad),
        "training_rows": len(training),
        "test_rows": len(held_out),
        "test_rows_with_a_text_in_training": count_duplicates(training, held_out),
    }
    if isinstance(task, LabelTaskConfig):
        facts |= _label_facts(path, training, held_out)
    plan = plan_task(out, recipe, training, tokenizer=tokenizer, start=start)
    files = {HELD_OUT: pack_rows(held_out)} if held_out else {}
    return dataclasses.replace(plan, facts=facts, files=files)


def _label_facts(
    path: Path, training: Sequence[Example], held_out: Sequence[Example]
) -> dict[str, Any]:
    """Return numbers of labels.

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
