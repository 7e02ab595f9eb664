"""Answers of a run to questions, with confidence and evidence from the training text."""

from collections.abc import Sequence
from math import exp, inf

import msgspec

from regard.corpus.evidence import AnswerNames, Evidence, find_evidence
from regard.corpus.index import RUN_INDEX, CorpusIndex
from regard.decoding.generate import decode_answer
from regard.decoding.prepare import has_hooks
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.metrics import exact_match
from regard.runs.run import Run
from regard.runs.training_text import KnownAnswers, load_known_answers
from regard.tasks.examples import Example, encode_questions, subject_of
from regard.uncertainty.calibration import Calibration
from regard.uncertainty.signals import (
    MAX_NEW_TOKENS,
    OF_ANSWER,
    SignalConfig,
    answer_rows,
    corpus_signals,
    measure,
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a question, or an abstention.

    >>> [answer] = regard.answer(run, ["Where was Ada born?"])
    >>> answer.subject, answer.answer, sorted(answer.signals)
    ('Ada', 'Rome', ['familiarity', 'weakest token'])
    """

    question: str
    subject: str = ""
    """Empty if no subject is recognized."""
    expected: str | None = None
    """None if unknown."""
    answer: str | None
    """None if the run abstains."""
    best_guess: str | None
    """Greedy answer, even if the run abstains; None if the question can't be read."""
    confidence: float
    """Estimated probability of being right if calibrated, else the answer's probability."""
    signals: dict[str, float] = {}
    evidence: Evidence | None = None
    """None without an index or without a subject."""
    reason: str | None = None
    """Reason why the question can't be read."""

    @property
    def answered(self) -> str:
        """Greedy answer, even if the run abstains; empty if the question can't be read."""
        return self.best_guess or ""

    @property
    def abstained(self) -> bool:
        """Whether the run abstains."""
        return self.answer is None

    @property
    def correct(self) -> bool:
        """Whether the greedy answer is the expected one; False if the expected one is unknown."""
        return self.expected is not None and exact_match(self.answered, self.expected)

    @property
    def scores(self) -> dict[str, float]:
        """The confidence and all signals: higher is more trustworthy."""
        return {"confidence": self.confidence} | self.signals

    def score(self, signal: str) -> float:
        """Return the confidence or a signal; of a question that can't be read, a signal is −∞."""
        return self.scores.get(signal, -inf) if self.best_guess is None else self.scores[signal]


def answer(
    run: Run,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    *,
    signals: SignalConfig | None = None,
    calibration: Calibration | None = None,
    index: CorpusIndex | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
) -> list[Answer]:
    """Answer questions (any texts) greedily; a calibrated run abstains from doubtful answers.

    `signals` defaults to those of the calibration, or to all that need only the question. Edits
    refer to the question, so of an edited run only the signals of the answer's tokens are measured.
    An `index` of the training text adds evidence. Words that the vocabulary lacks are left out of a
    question, and the run abstains from it. Answers don't depend on the other questions.

    Raises:
        UserError: the run was calibrated with another index, or edited with wordings to measure.
    """
    if calibration is not None:
        _require_index(run, calibration, index)
    read, rows = _read_all(run, questions)
    asked = [part for part, _ in read if part is not None]
    greedy = answer_rows(run, rows, environment, max_new_tokens=max_new_tokens)
    config = signals or (calibration.config if calibration else SignalConfig())
    if has_hooks(run.model):
        if config.wordings:
            raise UserError("--paraphrase: isn't available for edits, which refer to the question")
        names = tuple(name for name in config.names if name in OF_ANSWER)
        config = msgspec.structs.replace(config, names=names, subjects=())
    measured = zip(
        (decode_answer(run, one) for one in greedy),
        (exp(sum(one.log_probabilities)) for one in greedy),
        measure(run, asked, greedy, environment, config),
        strict=True,
    )
    known = calibration.known if calibration else load_known_answers(run)
    judge = _Judge(calibration, index, known, AnswerNames.of(known.answers))
    return [
        _unread(question, reason) if part is None else judge(question, reason, *next(measured))
        for question, (part, reason) in zip(questions, read, strict=True)
    ]


class _Judge(msgspec.Struct, frozen=True):
    """Decision whether to answer or abstain, with evidence from the index."""

    calibration: Calibration | None
    index: CorpusIndex | None
    known: KnownAnswers
    names: AnswerNames
    """Names of the known answers."""

    def __call__(
        self,
        question: Example,
        reason: str | None,
        guess: str,
        probability: float,
        signals: dict[str, float],
    ) -> Answer:
        calibration, index, subject = self.calibration, self.index, subject_of(question.text)
        relation = self.known.relation
        evidence = None
        if index:
            signals = signals | corpus_signals(index, question.text, guess, self.names, relation)
            gold = () if question.answer is None else (question.answer,)
            if subject:
                evidence = find_evidence(
                    index, subject, guess, names=self.names, gold=gold, relation=relation
                )
        confidence, given = probability, True
        if calibration:
            confidence = float(calibration.confidence([signals])[0])
            given = bool(calibration.guarantee.answers(confidence))
        return Answer(
            question=question.text,
            subject=subject,
            expected=question.answer,
            answer=guess if given and reason is None else None,
            best_guess=guess,
            confidence=confidence,
            signals=signals,
            evidence=evidence,
            reason=reason,
        )


def _read_all(
    run: Run, questions: Sequence[Example]
) -> tuple[list[tuple[Example | None, str | None]], list[list[int]]]:
    """Return each question's readable part, with a reason if shortened, and the encoded prompts.

    A question without a readable part has no prompt.
    """
    reasons = [_unreadable(run, question) for question in questions]
    read = [
        (question if reason is None else _known_part(run, question), reason)
        for question, reason in zip(questions, reasons, strict=True)
    ]
    return read, _encode(run, [part for part, _ in read if part is not None])


def _encode(run: Run, questions: Sequence[Example]) -> list[list[int]]:
    return encode_questions(run.template, questions, run.recipe.model.context_length)


def _unread(question: Example, reason: str | None) -> Answer:
    """Return an abstention from a question that can't be read."""
    return Answer(
        question=question.text,
        subject=subject_of(question.text),
        expected=question.answer,
        answer=None,
        best_guess=None,
        confidence=0.0,
        reason=reason,
    )


def _require_index(run: Run, calibration: Calibration, index: CorpusIndex | None) -> None:
    """Raise unless the index is that of the calibration, if it has one."""
    if calibration.index not in (None, index.fingerprint if index else None):
        found = f"index {index.fingerprint}" if index else "none"
        raise UserError(
            f"the run was calibrated with the corpus index {calibration.index}, but this is "
            f"{found}; copy it to {run.path / RUN_INDEX}, name it as --index of regard ask, "
            "or repeat regard calibrate"
        )


def _unreadable(run: Run, question: Example) -> str | None:
    """Return the reason why a question can't be read; None if it can."""
    if not question.text.strip():
        return "the question is empty"
    try:
        _encode(run, [question])
    except UserError as error:
        return str(error)
    return None


def _known_part(run: Run, question: Example) -> Example | None:
    """Return a question without its unknown words; None if the rest can't be read either."""
    words = [word for word in question.text.split() if _unreadable(run, Example(text=word)) is None]
    part = Example(text=" ".join(words))
    return part if _unreadable(run, part) is None else None
