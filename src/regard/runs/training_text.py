"""The text that a run was trained on: files, tokens, index, known answers; overlap with other data.

Index and known answers are those of the run, or of its nearest ancestor that has them.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from regard.runs.recipe import Recipe, load_recipe
from regard.runs.run import Run, ancestors, data_fingerprint, is_missing
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
    gone = [one["run"] for one in ancestors(run.path, run.origin) if is_missing(one)]
    if gone:
        warnings.warn(
            f"{run.path}: no index is found, and these ancestors are missing, or were replaced by "
            f"other runs: {', '.join(gone)}; put them back, or name an index",
            stacklevel=2,
        )
    return None


def _folders(run: Run) -> list[Path]:
    found = ancestors(run.path, run.origin)
    return [run.path, *(Path(one["run"]) for one in found if not is_missing(one))]


def _nearest(run: Run, name: str) -> Path | None:
    return next((path for folder in _folders(run) if (path := folder / name).exists()), None)


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


def trained_questions(run: Run) -> tuple[dict[Path, list[Example]], list[Path]]:
    """Return the questions of files that trained a run and its ancestors, and the changed files.

    Of a file with more questions than in training, they are the first ones. A file is changed if
    its first questions are others than in training; files of pretraining aren't compared. Files
    that are missing are left out.
    """
    read, trained, changed = _read_files(run), dict[Path, list[Example]](), list[Path]()
    for origin in (run.origin, *run.origin.get("ancestors", ())):
        paths = list(map(Path, origin.get("inputs", ())))
        parts = {path: read[path] for path in paths if path in read}
        if origin.get("stage") in _QUESTION_STAGES and all(path.is_file() for path in paths):
            left = origin.get("questions", sum(map(len, parts.values())))
            for path, questions in parts.items():
                parts[path] = questions[:left]
                left -= len(parts[path])
            if data_fingerprint((), list(chain(*parts.values()))) != origin["fingerprint"]:
                changed += paths
                continue
        for path, part in parts.items():
            trained[path] = max(part, trained.get(path, []), key=len)
    return trained, changed


def _read_files(run: Run) -> dict[Path, list[Example]]:
    """Return the questions in the training files that can be read."""
    found = dict[Path, list[Example]]()
    for path in filter(Path.is_file, training_files(run)):
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

    None if the origin names no files of examples, or none that can be read as such. None with a
    warning if a file is missing or holds other examples than in training.
    """
    task = run.recipe.task
    try:
        if not isinstance(task, TextTaskConfig):
            trained = _training_questions(run)
        else:
            trained = list(_training_rows(run, task)) if run.origin.get("inputs") else []
    except UserError as error:
        warnings.warn(f"{error}; examples that were in training aren't counted", stacklevel=2)
        return None
    return count_duplicates(trained, examples) if trained else None


def _training_questions(run: Run) -> list[Example]:
    """Return the questions that trained a run and its ancestors.

    Raises:
        UserError: a file is missing, or the first questions of files aren't those of training.
    """
    _require_present(training_files(run), run.path)
    found, changed = trained_questions(run)
    if changed:
        names = ", ".join(map(str, dict.fromkeys(changed)))
        raise UserError(
            f"{run.path}: was trained on questions other than the first ones of {names}"
        )
    return list(chain(*found.values()))


def _require_present(files: Iterable[Path], run: Path) -> None:
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: is missing, and {run} was trained on it")


def _training_rows(run: Run, task: TextTaskConfig) -> Iterator[Example]:
    """Yield the rows that trained a run and its ancestors of the task, without their held-out ones.

    Raises:
        UserError: a file or an ancestor is missing, or files hold other rows than in training.
    """
    yield from _rows_of(run.path, run.recipe, run.origin, task)
    for one in ancestors(run.path, run.origin):
        if one.get("stage") == task.__struct_config__.tag and one.get("inputs"):
            if is_missing(one):
                raise UserError(f"{one['run']}: is missing, or was replaced by another run")
            folder = Path(one["run"])
            yield from _rows_of(folder, load_recipe(folder), one, task)


def _rows_of(
    folder: Path, recipe: Recipe, origin: Mapping[str, Any], task: TextTaskConfig
) -> list[Example]:
    _require_present(map(Path, origin["inputs"]), folder)
    table = msgspec.structs.replace(recipe.data.table, skip_bad=True)
    held_out = set(map(_identity, load_rows(folder) or ()))
    read = (read_rows(task, Path(path), table).examples for path in origin["inputs"])
    rows = [row for row in chain.from_iterable(read) if _identity(row) not in held_out]
    rows = rows[: origin.get("questions")]  # others were appended since
    if data_fingerprint((), rows) != origin.get("fingerprint"):
        raise UserError(f"{folder}: was trained on other rows than those of its files now")
    return rows


def _identity(row: Example) -> tuple[str, str, str | None]:
    """Return name, line and texts of a row: files of two folders may have the same name."""
    return Path(row.where).name, row.text, row.second


def is_training_text(run: Run, path: Path) -> bool:
    """Return whether a run or an ancestor was trained on a file, or on all files of a folder.

    The files of packed texts are compared by content; others, and those of ancestors that are
    missing or were replaced, by name.
    """
    origins = [{"run": str(run.path), **run.origin}, *ancestors(run.path, run.origin)]
    present, names, sums = _folders(run), set[str](), set[str]()
    packed = {one for origin in origins for one in origin.get("packed", ())}
    for origin in origins:
        folder = Path(origin["run"])
        with suppress(UserError):  # there is no packed text, or it is damaged
            if folder in present:
                sums |= {file.sha256 for file in read_header(folder / TOKENS).spec.files}
                continue
        names.update(origin.get("inputs", ()))
    for corpus in map(Path, names):
        with suppress(UserError):  # it is no packed corpus, or was replaced by another
            header = read_header(corpus)
            if header.fingerprint in packed:
                sums |= {file.sha256 for file in header.spec.files}
    return all(
        str(file.resolve()) in names or (sums and inspect_file(file).sha256 in sums)
        for file in find_files([path])
    )
