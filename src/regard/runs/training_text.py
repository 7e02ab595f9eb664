"""The training text of a run as questions look it up: its index, and the answers that are known.

Both are those of the run, or of its nearest ancestor that has them.
"""

import warnings
from collections.abc import Iterable
from pathlib import Path

import msgspec

from regard.corpus.evidence import AnswerNames, learn_relation
from regard.corpus.index import RUN_INDEX, CorpusIndex, open_index
from regard.corpus.relations import Relation
from regard.errors import UserError
from regard.files import decode_json, to_json, write_file
from regard.runs.run import Run, ancestors
from regard.tasks.examples import Example, subject_of

KNOWN_ANSWERS = "known_answers.json"
"""Name of the file of known answers in a run's folder."""


class KnownAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers that are recognized in documents, and how documents state them."""

    answers: tuple[str, ...] = ()
    relation: Relation | None = None
    """Which mentions of answers state what questions ask for; None without an index."""

    @staticmethod
    def learn(
        questions: Iterable[Example], index: CorpusIndex | None, more: Iterable[str] = ()
    ) -> "KnownAnswers":
        """Learn them from answered questions and the text; `more` answers are known besides."""
        asked = [(subject_of(one.text), one.answer) for one in questions if one.answer]
        names = AnswerNames.of([*more, *(answer for _, answer in asked)])
        return KnownAnswers(
            answers=tuple(sorted(set(names.by_words.values()))),
            relation=learn_relation(index, asked, names) if index else None,
        )

    def save(self, run: Path) -> None:
        """Write them into a run's folder."""
        write_file(run / KNOWN_ANSWERS, to_json(msgspec.to_builtins(self)))


def load_known_answers(run: Run) -> KnownAnswers:
    """Return the answers that the training of a run or its nearest ancestor taught, if any.

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
