"""The text that a run was trained on: files, tokens, index, known answers; overlap with other data.

Index and known answers are those of the run, or of its nearest ancestor that has them.
"""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from regard.corpus.evidence import AnswerNames, learn_relation
from regard.corpus.index import RUN_INDEX, CorpusIndex, open_index
from regard.corpus.relations import Relation
from regard.errors import UserError
from regard.files import decode_json, to_json, write_file
from regard.runs.run import Run, ancestors
from regard.tasks.examples import Example, read_questions, subject_of
from regard.tasks.registry import read_rows
from regard.tasks.rows import count_duplicates, load_rows
from regard.tasks.split import TextTaskConfig
from regard.text.files import content_suffix, find_files, inspect_file
from regard.text.packed import PackedCorpus, is_packed, open_packed, read_header

TOKENS = "tokens"
"""Folder of a run with the packed text that it was trained on."""
KNOWN_ANSWERS = "known_answers.json"
"""Name of the file of known answers in a run's folder."""
_QUESTION_STAGES = {"questions", "finetuning"}
_QUESTION_SUFFIXES = {".tsv", ".jsonl", ".ndjson", ".json"}


class KnownAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers that are recognized in documents, and how documents state them."""

    answers: tuple[str, ...] = ()
    relation: Relation | None = None
    """Model of the mentions that state an answer to a question; None without an index."""

    @staticmethod
    def learn(questions: Iterable[Example], index: CorpusIndex | None) -> "KnownAnswers":
        """Learn them from answered questions and the text."""
        pairs = chain.from_iterable(one.pairs for one in questions)
        asked = [(subject_of(text), answer) for text, answer in pairs if answer]
        names = AnswerNames.of([answer for _, answer in asked])
        return KnownAnswers(
            answers=tuple(sorted(set(names.by_words.values()))),
            relation=learn_relation(index, asked, names) if index else None,
        )

    def save(self, run: Path) -> None:
        """Write them into a run's folder."""
        write_file(run / KNOWN_ANSWERS, to_json(msgspec.to_builtins(self)))


def load_known_answers(run: Run) -> KnownAnswers:
    """Return the known answers of a run, or of its nearest ancestor with any.

    Raises:
        UserError: the file is damaged.
    """
    path = _nearest(run, KNOWN_ANSWERS)
    if path is None:
        return KnownAnswers()
    try:
        return decode_json(path.read_bytes(), KnownAnswers)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: holds no known answers ({error}); delete it, or repeat the training"
        ) from None


def open_run_index(run: Run, given: Path | None = None) -> CorpusIndex | None:
    """Return the given index, or that in the folder of a run or its nearest ancestor, if any.

    Without an index, a warning names the ancestors whose folders are missing.
    """
    path = given or _nearest(run, RUN_INDEX)
    if path is not None:
        return open_index(path)
    gone = [str(one) for one in _folders(run)[1:] if _is_missing(one)]
    if gone:
        warnings.warn(
            f"{run.path}: no index is found, and these ancestors are missing: {', '.join(gone)}; "
            "put them back, or name an index",
            stacklevel=2,
        )
    return None


def _folders(run: Run) -> list[Path]:
    return [run.path, *(Path(one["run"]) for one in ancestors(run.path, run.origin))]


def _nearest(run: Run, name: str) -> Path | None:
    return next((path for folder in _folders(run) if (path := folder / name).exists()), None)


def _is_missing(folder: Path) -> bool:
    return not folder.exists() and not str(folder).startswith("hf:")


# Packed corpora, and files of questions


def training_corpora(run: Run) -> list[PackedCorpus]:
    """Open the packed corpora that a run was trained on; none for other runs.

    Raises:
        UserError: one is missing or damaged, or has changed since.
    """
    if not run.is_trained_on_packed:
        return []
    found = []
    for name, fingerprint in zip(run.origin["inputs"], run.origin["packed"], strict=True):
        path = Path(name)
        if not is_packed(path):
            raise UserError(
                f"{path}: is no packed corpus any more, but {run.path} was trained on it; name a "
                "text or packed corpus to score"
            )
        corpus = open_packed(path)
        if corpus.header.fingerprint != fingerprint:
            raise UserError(
                f"{path}: has changed since {run.path} was trained on it; name a text or packed "
                "corpus to score"
            )
        found.append(corpus)
    return found


def trained_questions(run: Run) -> dict[Path, list[Example]]:
    """Return the question files that trained a run and its parents, as far as they still exist."""
    found = dict[Path, list[Example]]()
    for path in training_files(run):
        if path.is_file():
            with suppress(UserError):  # a corpus in JSONL
                found[path] = read_questions(path)
    return found


def training_files(run: Run) -> list[Path]:
    """Return the files that may hold questions that trained a run and its ancestors.

    All files of the stages that train on questions; of others, those with a suffix of questions.
    """
    return [
        Path(name)
        for origin in (run.origin, *run.origin.get("ancestors", ()))
        for name in origin.get("inputs", ())
        if origin.get("stage") in _QUESTION_STAGES or content_suffix(name) in _QUESTION_SUFFIXES
    ]


# Overlap of evaluation data with training


def count_trained(run: Run, examples: Sequence[Example]) -> int | None:
    """Return how many examples have a text that the run or an ancestor was trained on.

    None if the origin names no files of examples, or one of them is missing or unreadable.
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
    task, table = run.recipe.task, msgspec.structs.replace(run.recipe.data.table, skip_bad=True)
    assert isinstance(task, TextTaskConfig)
    rows = chain.from_iterable(read_rows(task, path, table).examples for path in files)
    held_out = set(map(_identity, load_rows(run.path) or ()))
    return [row for row in rows if _identity(row) not in held_out]


def _identity(row: Example) -> tuple[str, str, str | None]:
    """Return name, line and texts of a row: files of two folders may have the same name."""
    return Path(row.where).name, row.text, row.second


def is_training_text(run: Run, path: Path) -> bool:
    """Return whether a run or an ancestor was trained on a file, or on all files of a folder.

    For a run with packed text, files are compared by content; for others, by name.
    """
    files = find_files([path])
    if is_packed(run.path / TOKENS):
        with suppress(UserError):  # it may be damaged
            sums = {file.sha256 for file in read_header(run.path / TOKENS).spec.files}
            return all(inspect_file(file).sha256 in sums for file in files)
    origins: list[dict[str, Any]] = [run.origin, *run.origin.get("ancestors", ())]
    known = set(chain.from_iterable(origin.get("inputs", ()) for origin in origins))
    return known.issuperset(str(file.resolve()) for file in files)
