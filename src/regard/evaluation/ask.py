"""Answers with confidence, evidence from the training text, and abstention."""

import warnings
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from regard.corpus.evidence import AnswerNames, Evidence, find_evidence, learn_relation
from regard.corpus.index import RUN_INDEX, CorpusIndex, open_index
from regard.corpus.relations import Relation
from regard.decoding.generate import Generated
from regard.device import ExecutionEnvironment
from regard.errors import UserError
from regard.metrics import exact_match
from regard.runs.run import Run
from regard.runs.start import ancestors
from regard.tasks.examples import Example, encode_questions, require_answers, subject_of
from regard.uncertainty.abstention import calibrate as test_thresholds
from regard.uncertainty.calibration import (
    Calibration,
    require_untrained,
    signal_matrix,
    split_thirds,
    trained_questions,
    weights_hash,
)
from regard.uncertainty.signals import Measured, SignalConfig, corpus_signals, measure

SUBJECTS = 8
"""Other subjects with which PMI is measured."""
SAMPLES = 10
"""Sampled answers of a calibrated run."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a question."""

    question: str
    subject: str
    """Empty if it isn't recognized."""
    answer: str | None
    """None: the run abstains."""
    best_guess: str | None
    """The greedy answer, given or not; None where the question can't be read."""
    confidence: float
    """Calibrated: the estimated probability of being right; otherwise, the answer's probability."""
    signals: dict[str, float]
    evidence: Evidence | None
    """None without an index or without a subject."""
    reason: str | None = None
    """Why the question can't be read."""


def ask(
    run: Run,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    *,
    calibration: Calibration | None = None,
    index: CorpusIndex | None = None,
    greedy: Sequence[Generated] = (),
) -> list[Reply]:
    """Answer questions, any texts; a calibrated run abstains from doubtful answers.

    A question with unknown words, or one that can't be read at all, gets a reply with the reason
    and no answer; of the words that are known, the best guess is made. `greedy` are the answers to
    questions without unknown words, where they exist already.

    Raises:
        UserError: the run isn't trained on questions, or was calibrated with another index.
    """
    require_answering(run)
    if calibration is not None:
        _require_index(calibration, index)
    reasons = [_unreadable(run, question) for question in questions]
    parts = [
        question if reason is None else _known_part(run, question)
        for question, reason in zip(questions, reasons, strict=True)
    ]
    asked = {place: part.text for place, part in enumerate(parts) if part is not None}
    given = [greedy[place] for place in asked] if greedy else ()
    config = calibration.config if calibration else SignalConfig()
    measured = measure(run, list(asked.values()), environment, config, greedy=given)
    found = dict(zip(asked, measured, strict=True))
    known = AnswerNames.of(calibration.answers if calibration else ())
    names = known.add(one.answer for one in questions if one.answer is not None)
    return [
        _reply(question, reason, found[place], calibration, index, known, names)
        if place in found
        else _no_reply(question, reason or "")
        for place, (question, reason) in enumerate(zip(questions, reasons, strict=True))
    ]


def _reply(
    question: Example,
    reason: str | None,
    found: Measured,
    calibration: Calibration | None,
    index: CorpusIndex | None,
    known: AnswerNames,
    names: AnswerNames,
) -> Reply:
    """Return the reply to a question; `names` are the known answers and the expected ones."""
    relation = calibration.relation if calibration else None
    counted = _counted(index, question.text, found, known, relation) if index else {}
    signals = found.signals | counted
    if calibration is None:
        confidence, given = np.exp(signals["log-probability"]), True
    else:
        (confidence,) = calibration.confidence([signals])
        given = bool(calibration.guarantee.answers(confidence))
    return Reply(
        question=question.text,
        subject=subject_of(question.text),
        answer=found.answer if given and reason is None else None,
        best_guess=found.answer,
        confidence=float(confidence),
        signals=signals,
        evidence=_evidence(index, question, found, names, relation),
        reason=reason,
    )


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
    """Fit the confidence of a run and find the threshold from which it answers.

    A random third of the questions fits the confidence, the others test thresholds. The question
    files of the run's training, as far as they exist, share no subject with these questions.

    Raises:
        UserError: the questions lack answers, can't be read, are too few or were trained on.
    """
    require_answering(run)
    require_answers(list(questions))
    if len(questions) < 3:
        raise UserError(f"{questions[0].where}: calibration needs at least 3 questions")
    for wording in wordings:
        if "{}" not in wording:
            raise UserError(f"paraphrase {wording!r}: has no {{}} where the subject belongs")
    trained = trained_questions(run)
    require_untrained(run, questions, trained.values())
    encode_questions(run.template, questions, run.recipe.model.context_length)
    fitted = split_thirds(len(questions), seed)
    subjects = [subject_of(questions[i].text) for i in np.flatnonzero(fitted).tolist()]
    config = SignalConfig(
        subjects=tuple(dict.fromkeys(filter(None, subjects)))[:SUBJECTS],
        wordings=tuple(wordings),
        samples=SAMPLES,
        seed=seed,
    )
    measured = measure(run, [one.text for one in questions], environment, config)
    right = [
        exact_match(found.answer, one.answer or "")
        for found, one in zip(measured, questions, strict=True)
    ]
    answers = tuple(sorted({one.answer for one in questions if one.answer is not None}))
    signals = [found.signals for found in measured]
    relation = None
    if index is not None:
        known = [
            (subject_of(one.text), one.answer) for one in chain(*trained.values()) if one.answer
        ]
        names = AnswerNames.of(answers).add(answer for _, answer in known)
        answers = tuple(sorted(names.by_words.values()))
        relation = learn_relation(index, known, names)
        signals = [
            found.signals | _counted(index, one.text, found, names, relation)
            for found, one in zip(measured, questions, strict=True)
        ]
    chosen = tuple(signals[0])
    combination, guarantee = test_thresholds(
        signal_matrix(signals, chosen),
        np.array(right),
        max_error=max_error,
        level=level,
        seed=seed,
    )
    return Calibration(
        weights=weights_hash(run.path),
        index=index.fingerprint if index else None,
        config=config,
        signals=chosen,
        combination=combination,
        guarantee=guarantee,
        answers=answers,
        relation=relation,
    )


def open_run_index(run: Run, given: Path | None = None) -> CorpusIndex | None:
    """Return the given index, or that in the folder of a run or its nearest ancestor, if any.

    Without an index, a warning names the ancestors whose folders are missing.
    """
    if given is not None:
        return open_index(given)
    folders = [run.path, *(Path(one["run"]) for one in ancestors(run.path, run.origin))]
    found = next((path for folder in folders if (path := folder / RUN_INDEX).exists()), None)
    if found is not None:
        return open_index(found)
    gone = [str(one) for one in folders[1:] if not one.exists() and not str(one).startswith("hf:")]
    if gone:
        warnings.warn(
            f"{run.path}: no index is found, and these ancestors are missing: {', '.join(gone)}; "
            "put them back, or name an index",
            stacklevel=2,
        )
    return None


def require_answering(run: Run) -> None:
    """Raise unless a run was trained on questions.

    Raises:
        UserError: it was not.
    """
    if run.recipe.task is not None or not run.answers_questions:
        raise UserError(
            f"{run.path}: isn't trained on questions; train it with regard finetune, or continue "
            "texts with regard generate"
        )
    _ = run.language_model


def _require_index(calibration: Calibration, index: CorpusIndex | None) -> None:
    """Raise unless the index is that of the calibration, if it has one."""
    if calibration.index not in (None, index.fingerprint if index else None):
        found = f"index {index.fingerprint}" if index else "none"
        raise UserError(
            f"the run was calibrated with the corpus index {calibration.index}, but this is "
            f"{found}; give the same --index, or repeat regard calibrate"
        )


def _unreadable(run: Run, question: Example) -> str | None:
    """Return why a question can't be read; None if it can."""
    if not question.text.strip():
        return "the question is empty"
    try:
        encode_questions(run.template, [question], run.recipe.model.context_length)
    except UserError as error:
        return str(error)
    return None


def _known_part(run: Run, question: Example) -> Example | None:
    """Return a question without the words that the vocabulary lacks; None if that can't be read."""
    words = [word for word in question.text.split() if _unreadable(run, Example(text=word)) is None]
    part = Example(text=" ".join(words))
    return part if _unreadable(run, part) is None else None


def _no_reply(question: Example, reason: str) -> Reply:
    return Reply(
        question=question.text,
        subject=subject_of(question.text),
        answer=None,
        best_guess=None,
        confidence=0.0,
        signals={},
        evidence=None,
        reason=reason,
    )


def _evidence(
    index: CorpusIndex | None,
    question: Example,
    found: Measured,
    names: AnswerNames,
    relation: Relation | None,
) -> Evidence | None:
    subject = subject_of(question.text)
    if index is None or not subject:
        return None
    gold = () if question.answer is None else (question.answer,)
    return find_evidence(index, subject, found.answer, names=names, gold=gold, relation=relation)


def _counted(
    index: CorpusIndex,
    question: str,
    found: Measured,
    known: AnswerNames,
    relation: Relation | None,
) -> dict[str, float]:
    """Return the signals of the corpus; they never depend on the expected answer."""
    evidence = _evidence(index, Example(text=question), found, known, relation)
    statement = {} if relation is None else {"statement": evidence.lead if evidence else 0.0}
    if evidence is None:
        return corpus_signals(0, 0, 0) | statement
    others = sum(evidence.others.values())
    return corpus_signals(evidence.documents, len(evidence.passages), others) | statement
