"""The calibration of a run: its confidence and its threshold, stored in the run's folder."""

import warnings
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np
from jaxtyping import Float

from regard.corpus.evidence import AnswerNames
from regard.corpus.index import CorpusIndex
from regard.decoding.generate import decode_answer
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.files import decode_json, fingerprint_of, write_file
from regard.metrics import exact_match
from regard.runs.run import Run
from regard.runs.training_text import KnownAnswers, load_known_answers, trained_questions
from regard.tasks.examples import (
    Example,
    encode_questions,
    require_all_or_none,
    require_answers,
    subject_of,
)
from regard.uncertainty.abstention import Combination, Guarantee, calibrate, split_thirds
from regard.uncertainty.signals import (
    SignalConfig,
    answer_rows,
    corpus_signals,
    measure,
)

FORMAT = "regard calibration 3"
FILE = "calibration.json"
"""Name of the calibration file in a run's folder."""
SUBJECTS = 8
"""Number of other subjects for measuring PMI."""
SAMPLES = 10
"""Number of sampled answers per question of a calibrated run."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The confidence of a run's answers, and the threshold below which the run abstains."""

    format: str = FORMAT
    weights: str
    """Hash of the weights that gave the answers."""
    precision: str
    """Precision of the matrix products that gave them."""
    index: str | None
    """Fingerprint of the corpus whose counts are signals."""
    config: SignalConfig
    signals: tuple[str, ...]
    """Names of the signals that the combination reads."""
    combination: Combination
    guarantee: Guarantee
    known: KnownAnswers
    """Answers to the training questions. Those to the calibration questions would be signals that
    new questions don't have, and break the guarantee."""

    def confidence(self, signals: Sequence[dict[str, float]]) -> Float[np.ndarray, " n"]:
        """Return the probability that each answer is right."""
        return self.combination(signal_matrix(signals, self.signals))


def calibrate_run(
    run: Run,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    *,
    max_error: float,
    level: float = 0.95,
    wordings: Sequence[str] = (),
    index: CorpusIndex | None = None,
    seed: int = 0,
) -> Calibration:
    """Fit the confidence of a run and find the threshold below which it abstains.

    A random third of the questions fits the confidence; the rest test thresholds. No subject may
    occur in a question file that the run was trained on, unless its lines have changed since.
    A repeated question counts once, with a warning.

    Raises:
        UserError: the questions lack answers, can't be read, are too few or were trained on.
    """
    require_answering(run)
    require_wordings(wordings, questions)
    _require_single(questions)
    questions = _distinct(questions)
    trained = _require_usable(run, questions)
    rows = encode_questions(run.template, questions, run.recipe.model.context_length)
    fitted, _ = split_thirds(len(questions), seed)
    subjects = [subject_of(questions[i].text) for i in sorted(fitted.tolist())]
    config = SignalConfig(
        subjects=tuple(dict.fromkeys(filter(None, subjects)))[:SUBJECTS],
        wordings=tuple(wordings),
        samples=SAMPLES,
        seed=seed,
    )
    greedy = answer_rows(run, rows, environment)
    given = [decode_answer(run, one) for one in greedy]
    right = [exact_match(a, one.answer or "") for a, one in zip(given, questions, strict=True)]
    signals = measure(run, questions, greedy, environment, config)
    known = _known_answers(run, trained, index)
    if index is not None:
        names = AnswerNames.of(known.answers)
        signals = [
            found | corpus_signals(index, one.text, a, names, known.relation)
            for found, one, a in zip(signals, questions, given, strict=True)
        ]
    chosen = tuple(signals[0])
    matrix, correct = signal_matrix(signals, chosen), np.array(right)
    combination, guarantee = calibrate(matrix, correct, max_error=max_error, level=level, seed=seed)
    return Calibration(
        weights=weights_hash(run.path),
        precision=environment.precision,
        index=index.fingerprint if index else None,
        config=config,
        signals=chosen,
        combination=combination,
        guarantee=guarantee,
        known=known,
    )


def _require_single(questions: Sequence[Example]) -> None:
    """Check that there are questions, each with an answer and a single turn.

    Raises:
        UserError: there are none, or one lacks an answer, or has several turns.
    """
    require_all_or_none(require_answers(list(questions)))
    if turns := next((one for one in questions if one.turns), None):
        raise UserError(f"{turns.place}: has several turns; calibrate on single questions")


def _distinct(questions: Sequence[Example]) -> list[Example]:
    """Return the questions without repeated ones, which are no further evidence for a guarantee."""
    found = dict[tuple[str, str | None], Example]()
    for one in questions:
        found.setdefault((one.text, one.answer), one)
    if repeated := len(questions) - len(found):
        warnings.warn(
            f"{repeated} of {len(questions)} questions repeat others and are left out",
            stacklevel=3,
        )
    return list(found.values())


def _known_answers(run: Run, trained: Sequence[Example], index: CorpusIndex | None) -> KnownAnswers:
    """Return the known answers of the training files, and those that training has saved.

    Of files that are missing or have changed since, only the saved answers are known.
    """
    saved, read = load_known_answers(run), KnownAnswers.learn(trained, index)
    return KnownAnswers(
        answers=tuple(sorted({*saved.answers, *read.answers})),
        relation=read.relation or saved.relation,
    )


def _require_usable(run: Run, questions: Sequence[Example]) -> list[Example]:
    """Return the run's training questions; raise unless `questions` can calibrate it.

    Raises:
        UserError: they are too few or were trained on.
    """
    if len(questions) < 3:
        raise UserError(f"{questions[0].place}: calibration needs at least 3 questions")
    trained = list(chain(*trained_questions(run)[0].values()))
    require_untrained(run, questions, trained)
    return trained


def require_answering(run: Run) -> None:
    """Check that a run was trained on questions.

    Raises:
        UserError: the run was not trained on questions.
    """
    if run.recipe.task is not None or not run.answers_questions:
        raise UserError(
            f"{run.path}: isn't trained on questions; train it with regard finetune, or continue "
            "texts with regard generate"
        )
    _ = run.language_model


def require_wordings(wordings: Sequence[str], questions: Sequence[Example] = ()) -> None:
    """Check that each wording has a placeholder {}, and each question a subject for it.

    Raises:
        UserError: a wording has none; or a question has none, or several turns.
    """
    for wording in wordings:
        if "{}" not in wording:
            raise UserError(f"paraphrase {wording!r}: has no {{}} where the subject belongs")
    for question in questions if wordings else ():
        if question.turns:
            raise UserError(f"{question.place}: has several turns; leave --paraphrase out")
        if not subject_of(question.text):
            raise UserError(
                f"{question.place}: has no capitalized name to put into a paraphrase; leave "
                "--paraphrase out"
            )


def signal_matrix(
    signals: Sequence[dict[str, float]], names: Sequence[str]
) -> Float[np.ndarray, "n signals"]:
    """Return the named signals as a matrix, a row for each answer."""
    rows = [[one[name] for name in names] for one in signals]
    return np.array(rows, dtype=float).reshape(len(signals), len(names))


def weights_hash(run: Path) -> str:
    """Return the hash of a run's weights on disk."""
    path = run / "model.safetensors"
    try:
        return fingerprint_of(path.read_bytes())
    except OSError as error:
        raise UserError(
            f"{path}: can't be read: {error.strerror}; give the folder of a run"
        ) from None


def save_calibration(run: Path, calibration: Calibration) -> Path:
    """Write a calibration into a run's folder and return its file."""
    path = run / FILE
    write_file(path, msgspec.json.format(msgspec.json.encode(calibration), indent=1) + b"\n")
    return path


def load_calibration(run: Path, environment: ExecutionEnvironment) -> Calibration | None:
    """Return the calibration of a run, if there is one.

    Raises:
        UserError: the file is damaged, or made with other weights or in another precision.
    """
    path = run / FILE
    repeat = "repeat regard calibrate, or delete the file"
    if not path.exists():
        return None
    try:
        found = decode_json(path.read_bytes(), Calibration)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is no calibration ({error}); {repeat}") from None
    if found.format != FORMAT:
        raise UserError(f"{path}: has format {found.format!r}, not {FORMAT!r}; {repeat}")
    if found.weights != weights_hash(run):
        raise UserError(f"{path}: was made with other weights than the run's; {repeat}")
    if found.precision != environment.precision:
        raise UserError(
            f"{path}: is of answers in {found.precision}, not {environment.precision}; answer with "
            f"--precision {found.precision}, or {repeat}"
        )
    return found


def require_untrained(run: Run, questions: Sequence[Example], trained: Sequence[Example]) -> None:
    """Check that a run was trained on no question about the subjects of these questions.

    Raises:
        UserError: it was; the message names the first such question.
    """
    known = {_key(text): question.where for question in trained for text, _ in question.pairs}
    for question in questions:
        if _key(question.text) in known:
            raise UserError(
                f"{question.place}: {known[_key(question.text)]} trained {run.path} on "
                f"{subject_of(question.text) or 'this question'}; calibrate on other questions"
            )


def _key(question: str) -> str:
    return (subject_of(question) or question).casefold()
