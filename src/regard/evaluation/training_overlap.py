"""How much of the data to evaluate on was in training, as far as the run's origin says."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from regard.errors import UserError
from regard.files import sums_of
from regard.runs.corpora import TOKENS
from regard.runs.run import Run
from regard.tasks.examples import Example
from regard.tasks.registry import read_rows
from regard.tasks.rows import count_duplicates, load_rows
from regard.tasks.split import TextTaskConfig
from regard.text.files import find_files
from regard.text.packed import is_packed, read_header
from regard.uncertainty.calibration import trained_questions, training_files


def count_trained(run: Run, examples: Sequence[Example]) -> int | None:
    """Return how many examples have a text that the run or an ancestor was trained on.

    None where the origin names no files of examples, or one of them is missing or unreadable.
    """
    is_rows = isinstance(run.recipe.task, TextTaskConfig)
    files = list(map(Path, run.origin.get("inputs", ()))) if is_rows else training_files(run)
    if not files or not all(path.is_file() for path in files):
        return None
    with suppress(UserError):
        found = [_training_rows(run, files)] if is_rows else trained_questions(run).values()
        return count_duplicates(chain(*found), examples) if found else None
    return None


def _training_rows(run: Run, files: Sequence[Path]) -> list[Example]:
    """Return the rows of files without those that the run holds out."""
    task, table = run.recipe.task, replace(run.recipe.data.table, skip_bad=True)
    assert isinstance(task, TextTaskConfig)
    rows = chain.from_iterable(read_rows(task, path, table).examples for path in files)
    held_out = {Path(row.where).name for row in load_rows(run.path) or ()}  # file and line
    return [row for row in rows if Path(row.where).name not in held_out]


def is_training_text(run: Run, path: Path) -> bool:
    """Return whether a run or an ancestor was trained on a file, or on all files of a folder.

    Of a run with packed text, the content counts; of others, the names of files.
    """
    files = find_files([path])
    if is_packed(run.path / TOKENS):
        with suppress(UserError):  # it may be damaged
            sums = {file.sha256 for file in read_header(run.path / TOKENS).spec.files}
            return all(sums.issuperset(sums_of([file]).values()) for file in files)
    origins: list[dict[str, Any]] = [run.origin, *run.origin.get("ancestors", ())]
    known = set(chain.from_iterable(origin.get("inputs", ()) for origin in origins))
    return known.issuperset(str(file.resolve()) for file in files)


def count_line(n: int, what: str, in_training: int | None) -> str:
    """Return a line with the number of examples, and how many of them were in training."""
    return f"{n} {what}" if in_training is None else f"{in_training} of {n} {what} were in training"
