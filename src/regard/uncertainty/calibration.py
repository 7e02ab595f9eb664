"""The calibration of a run: its confidence and its threshold, stored in the run's folder."""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from regard.corpus.relations import Relation
from regard.errors import UserError
from regard.files import write_file
from regard.runs.run import Run
from regard.tasks.examples import Example, read_questions, subject_of
from regard.uncertainty.abstention import Combination, Guarantee
from regard.uncertainty.signals import SignalConfig

FORMAT = "regard calibration 1"
FILE = "calibration.json"
"""Its name in a run's folder."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The confidence of a run's answers, and the threshold from which they are given."""

    format: str = FORMAT
    weights: str
    """Hash of the weights that answered."""
    index: str | None
    """Fingerprint of the corpus whose counts are signals."""
    config: SignalConfig
    signals: tuple[str, ...]
    """Names of the signals that the combination reads."""
    combination: Combination
    guarantee: Guarantee
    answers: tuple[str, ...]
    """The expected answers of the questions, to be recognized in documents."""
    relation: Relation | None = None
    """Which mentions in documents state the answer; None without an index."""

    def confidence(self, signals: Sequence[dict[str, float]]) -> Float[np.ndarray, " n"]:
        """Return the probability that each answer is right."""
        return self.combination(signal_matrix(signals, self.signals))


def signal_matrix(
    signals: Sequence[dict[str, float]], names: Sequence[str]
) -> Float[np.ndarray, "n signals"]:
    """Return signals by name as rows of numbers."""
    rows = [[one[name] for name in names] for one in signals]
    return np.array(rows, dtype=float).reshape(len(signals), len(names))


def weights_hash(run: Path) -> str:
    """Return the hash of a run's weights on disk."""
    path = run / "model.safetensors"
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UserError(
            f"{path}: can't be read: {error.strerror}; give the folder of a run"
        ) from None


def save_calibration(run: Path, calibration: Calibration) -> Path:
    """Write a calibration into a run's folder and return its file."""
    path = run / FILE
    write_file(path, msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n")
    return path


def load_calibration(run: Path) -> Calibration | None:
    """Return the calibration of a run, if there is one.

    Raises:
        UserError: the file is damaged, or made with other weights.
    """
    path = run / FILE
    repeat = "repeat regard calibrate, or delete the file"
    if not path.exists():
        return None
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{path}: is no calibration ({error}); {repeat}") from None
    if found.format != FORMAT:
        raise UserError(f"{path}: has format {found.format!r}, not {FORMAT!r}; {repeat}")
    if found.weights != weights_hash(run):
        raise UserError(f"{path}: was made with other weights than the run's; {repeat}")
    return found


def trained_questions(run: Run) -> dict[Path, list[Example]]:
    """Return the question files that trained a run and its parents, as far as they still exist."""
    found = dict[Path, list[Example]]()
    for path in training_files(run):
        if path.is_file():
            with suppress(UserError):  # a corpus in JSONL
                found[path] = read_questions(path)
    return found


def require_untrained(
    run: Run, questions: Sequence[Example], trained: Iterable[Sequence[Example]]
) -> None:
    """Raise if a run was trained on a question about the same subject as one of the questions.

    Raises:
        UserError: names the first.
    """
    known = {_key(question.text): question.where for part in trained for question in part}
    for question in questions:
        if _key(question.text) in known:
            raise UserError(
                f"{question.where}: {known[_key(question.text)]} trained {run.path} on "
                f"{subject_of(question.text) or 'this question'}; calibrate on other questions"
            )


def _key(question: str) -> str:
    return (subject_of(question) or question).casefold()


def training_files(run: Run) -> list[Path]:
    """Return the files that may hold questions that trained a run and its ancestors."""
    origins = [run.origin, *run.origin.get("ancestors", ())]
    files = [Path(name) for origin in origins for name in origin.get("inputs", ())]
    return [path for path in files if path.suffix in {".tsv", ".jsonl"}]


def split_thirds(n: int, seed: int = 0) -> Bool[np.ndarray, " n"]:
    """Return which of n calibration questions fit the confidence: a random third."""
    fitted = np.zeros(n, dtype=bool)
    fitted[np.random.default_rng(seed).permutation(n)[: n // 3]] = True
    return fitted
