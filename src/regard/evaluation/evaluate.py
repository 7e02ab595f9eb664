"""Scores of a run: by its task, on questions, or on a text."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from regard.corpus.index import CorpusIndex
from regard.edits.apply import edited
from regard.edits.edit import Edit, Edits, as_edits
from regard.environment import ExecutionEnvironment, Precision
from regard.errors import UserError
from regard.evaluation.answers import Answer, answer
from regard.evaluation.perplexity import (
    TextScore,
    held_out_perplexity,
    packed_perplexity,
    read_texts,
    text_perplexity,
)
from regard.evaluation.tasks import TaskScore, count_line, given_examples, score_task
from regard.files import to_csv, write_file
from regard.metrics import Interval, accuracy, auroc, auroc_interval, exact_match
from regard.runs.run import Run, require_finite
from regard.runs.training_text import count_trained, is_training_text, open_run_index
from regard.tasks.examples import (
    Example,
    Examples,
    encode_questions,
    read_questions,
    require_all_or_none,
)
from regard.text.files import RECORDS, SUFFIXES, content_suffix
from regard.text.packed import find_corpora, open_packed
from regard.uncertainty.abstention import Guarantee
from regard.uncertainty.calibration import Calibration, load_calibration, require_wordings
from regard.uncertainty.signals import SignalConfig, quick_signals

# Choice of a confidence signal


@dataclass(frozen=True)
class Chosen:
    """The best signal on the first half, and the AUROC of each on the second."""

    signal: str
    auroc: float
    all_aurocs: dict[str, float]


def signal_aurocs(trusted: Sequence[Answer], doubted: Sequence[Answer]) -> dict[str, Interval]:
    """Return the AUROC of each signal on all answers; empty if a kind has fewer than two."""
    if min(len(trusted), len(doubted)) < 2:
        return {}
    return {name: auroc_interval(*_values(name, trusted, doubted)) for name in trusted[0].scores}


def choose_signal(trusted: Sequence[Answer], doubted: Sequence[Answer], *, seed: int = 0) -> Chosen:
    """Choose the signal of highest AUROC on random halves, and score all on the other halves.

    Raises:
        ValueError: there are fewer than two answers of a kind.
    """
    if min(len(trusted), len(doubted)) < 2:
        raise ValueError("choosing a signal needs at least two answers of each kind")
    halves = zip(_halves(trusted, seed), _halves(doubted, seed + 1), strict=True)
    on_first, on_second = (_aurocs(*half) for half in halves)
    best = max(on_first, key=lambda name: on_first[name])
    return Chosen(best, on_second[best], on_second)


def _aurocs(trusted: Sequence[Answer], doubted: Sequence[Answer]) -> dict[str, float]:
    return {name: auroc(*_values(name, trusted, doubted)) for name in trusted[0].scores}


def _values(signal: str, *groups: Sequence[Answer]) -> list[list[float]]:
    return [[answer.scores[signal] for answer in group] for group in groups]


def _halves(answers: Sequence[Answer], seed: int) -> tuple[list[Answer], list[Answer]]:
    order = np.random.default_rng(seed).permutation(len(answers)).tolist()
    middle = len(order) // 2
    return [answers[i] for i in order[:middle]], [answers[i] for i in order[middle:]]


# Scores


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Answers of a run, and their scores.

    >>> questions = [regard.Example(text="Where was Ada born?", answer="Rome")]
    >>> evaluation: regard.Evaluation = regard.evaluate(run, questions)
    >>> evaluation.lines()
    ['accuracy: 100.0% [20.7%, 100.0%] of 1 questions']
    """

    answers: list[Answer]
    accuracy: Interval | None
    """None if the questions have no answers."""
    confidence: Chosen | None
    """Signal that separates right from wrong answers; None if there are too few of a kind."""
    guarantee: Guarantee | None = None
    """Guarantee of a calibrated run, None if the run is not calibrated."""
    in_training: int | None = None
    """Number of questions that the run was trained on; None if unknown."""
    history: tuple[tuple[str, str], ...] = ()
    """Earlier questions and answers of the first question's conversation."""

    @property
    def given(self) -> list[Answer]:
        """The answers from which the run doesn't abstain."""
        return [answer for answer in self.answers if not answer.abstained]

    @property
    def risk(self) -> float | None:
        """Share of wrong answers among those given; None if unknown or if none is given."""
        if self.accuracy is None or not self.given:
            return None
        return sum(not answer.correct for answer in self.given) / len(self.given)

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of answers of each verdict, commonest first; empty without an index."""
        found = Counter(one.evidence.verdict for one in self.answers if one.evidence)
        return {str(name): count for name, count in found.most_common()}

    def lines(self) -> list[str]:
        """Return the scores as text."""
        lines, n = list[str](), len(self.answers)
        if self.accuracy:
            lines += [f"accuracy: {self.accuracy.percent()} of {n} questions"]
        if self.accuracy is None or self.in_training is not None:
            lines += [count_line(n, "questions", self.in_training)]
        if self.guarantee:
            lines += [self.abstention(self.guarantee)]
        if self.verdicts:
            counts = ", ".join(f"{count} {name}" for name, count in self.verdicts.items())
            lines += [f"verdicts: {counts}"]
        return lines + [
            f"AUROC right against wrong, by {name}: {area:.3f}"
            for name, area in (self.confidence.all_aurocs.items() if self.confidence else ())
        ]

    def abstention(self, guarantee: Guarantee) -> str:
        """Return how many questions are answered, and how many of the answers are wrong."""
        wrong = "" if self.risk is None else f", {self.risk:.1%} of the answers wrong"
        return (
            f"answered: {len(self.given)} of {len(self.answers)} questions{wrong} (calibrated to "
            f"at most {guarantee.max_error:.3g} with probability {guarantee.level:.3g})"
        )

    def figures(self) -> dict[str, Any]:
        """Return the scores for a JSON file."""
        figures: dict[str, Any] = {"questions": len(self.answers)}
        if self.in_training is not None:
            figures["in_training"] = self.in_training
        if self.accuracy:
            figures |= {
                "accuracy": self.accuracy.value,
                "low": self.accuracy.low,
                "high": self.accuracy.high,
                "correct": sum(answer.correct for answer in self.answers),
            }
        if self.confidence:
            figures["auroc"] = self.confidence.all_aurocs
        if self.guarantee:
            figures |= {
                "answered": len(self.given),
                "coverage": len(self.given) / len(self.answers),
                "risk": self.risk,
                "max_error": self.guarantee.max_error,
                "level": self.guarantee.level,
            }
        if self.verdicts:
            figures["verdicts"] = self.verdicts
        return figures

    @property
    def answered(self) -> list[str]:
        """The predicted answers."""
        return [answer.answered for answer in self.answers]


def evaluate(
    run: Run,
    data: Examples | None = None,
    *,
    paraphrases: Sequence[str] = (),
    seed: int = 0,
    skip_bad: bool = False,
    precision: Precision = "float32",
    edit: Edit | Edits | None = None,
) -> Evaluation | TaskScore | TextScore:
    """Score a run: by its task, on questions, or on text by perplexity.

    A run with a task is scored on `data`, on the rows held out of its file, or on the task's own
    test examples; with `skip_bad`, bad rows of a file are left out. A run of `train text` or of
    packed corpora is scored on its held-out tokens, on files, or on the held-out documents of other
    packed corpora. `paraphrases` are other wordings of the questions, with {} for the subject.
    `seed` splits the answers into the half that selects a signal and the half that scores it.
    `edit` applies to the model; its words and positions refer to each question. The calibration
    doesn't apply to an edited run, so it doesn't abstain.

    Raises:
        UserError: the data don't fit the run, or the edit doesn't fit run or data.
        NonFiniteError: a weight is NaN or infinite.

    >>> questions = [regard.Example(text="Where was Ada born?", answer="Rome")]
    >>> regard.evaluate(run, questions).accuracy.value
    1.0
    """
    require_finite(run.model, run.path)
    with edited(run, edit):
        environment = run.environment(precision)
        if run.recipe.task is not None:
            rows = given_examples(run, data, skip_bad=skip_bad)
            found = score_task(run, environment, rows)
            return replace(found, in_training=count_trained(run, rows)) if rows else found
        if data is None:
            return _held_out_score(run, environment)
        if isinstance(data, str | Path):
            path = Path(data)
            if corpora := find_corpora(path):
                return _packed_score(run, path, corpora, environment)
            if is_text(run, path):
                text = text_perplexity(run, read_texts(run, path), environment)
                return replace(text, in_training=is_training_text(run, path) or None)
            data = read_questions(path)
        questions = list(data)
        scored = evaluate_questions(
            run,
            questions,
            environment,
            paraphrases=paraphrases,
            seed=seed,
            calibration=None if as_edits(edit).edits else load_calibration(run.path, environment),
            index=open_run_index(run),
        )
        return replace(scored, in_training=count_trained(run, questions))


def _held_out_score(run: Run, environment: ExecutionEnvironment) -> TextScore:
    if (score := held_out_perplexity(run, environment)) is not None:
        return replace(score, in_training=False)
    raise UserError(
        f"{run.path}: has no task and no held-out text; name a file: a text for perplexity, or "
        "questions with answers"
    )


def _packed_score(
    run: Run, path: Path, corpora: Sequence[Path], environment: ExecutionEnvironment
) -> TextScore:
    score = packed_perplexity(run, list(map(open_packed, corpora)), environment)
    if score is None:
        raise UserError(
            f"{path}: holds out no document to score; pack it with a share --validation"
        )
    return score


def is_text(run: Run, path: Path) -> bool:
    """Return whether a run scores a file or folder as text, not as questions."""
    if path.is_dir() or content_suffix(path) in SUFFIXES - RECORDS:
        return True
    read = (run.path / "tokens").is_dir() or run.is_trained_on_packed
    return content_suffix(path) != ".tsv" and read


def evaluate_questions(
    run: Run,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    *,
    paraphrases: Sequence[str] = (),
    seed: int = 0,
    calibration: Calibration | None = None,
    index: CorpusIndex | None = None,
) -> Evaluation:
    """Answer all questions, and score the answers if the expected ones are known.

    `seed` draws the half of the answers on which the signal is chosen. A `calibration` adds
    confidence and abstention, an `index` evidence; both are ignored for conversations.

    Raises:
        UserError: a question can't be encoded or is too long, or the run was calibrated with
            another index.
    """
    require_all_or_none(questions)
    if any(question.turns for question in questions):  # confidence is that of single questions
        calibration = index = None
    encode_questions(run.template, questions, run.recipe.model.context_length)
    signals = _signals(questions, paraphrases, calibration)
    answers = answer(
        run, questions, environment, signals=signals, calibration=calibration, index=index
    )
    found = Evaluation(
        answers=answers,
        accuracy=None,
        confidence=None,
        guarantee=calibration.guarantee if calibration else None,
        history=questions[0].turns,
    )
    if questions[0].answer is None:
        return found
    read = [answer for answer in answers if answer.signals]  # an empty question has none
    right = [answer for answer in read if answer.correct]
    wrong = [answer for answer in read if not answer.correct]
    enough = min(len(right), len(wrong)) >= 4
    return replace(
        found,
        accuracy=accuracy([answer.correct for answer in answers]),
        confidence=choose_signal(right, wrong, seed=seed) if enough else None,
    )


def _signals(
    questions: Sequence[Example], paraphrases: Sequence[str], calibration: Calibration | None
) -> SignalConfig:
    """Return the signals to measure: those of the calibration, or the quick ones.

    Raises:
        UserError: a paraphrase can't be used.
    """
    require_wordings(paraphrases, questions)
    if calibration is None:
        return quick_signals(paraphrases)
    if paraphrases and calibration.config.wordings:
        raise UserError("--paraphrase: the calibration has its own paraphrases; leave it out")
    wordings = (*calibration.config.wordings, *paraphrases)
    return msgspec.structs.replace(calibration.config, wordings=wordings)


def baseline_accuracy(questions: Sequence[Example], guess: str) -> Interval:
    """Return the accuracy of one constant answer.

    Raises:
        UserError: the questions have no answers.
    """
    if questions[0].answer is None:
        raise UserError(f"{questions[0].place}: a baseline needs questions with answers")
    return accuracy([exact_match(guess, question.answer or "") for question in questions])


def save_predictions(answers: Sequence[str], path: Path) -> None:
    """Write one answer per line, the format of the evaluation in CS224N's assignment 5."""
    write_file(path, "".join(" ".join(answer.split()) + "\n" for answer in answers).encode())


def save_answers(answers: Sequence[Answer], path: Path) -> None:
    """Write answers: with signals and verdicts to .jsonl or .csv, else as `save_predictions`."""
    rows = [
        {
            "question": one.question,
            "predicted": one.answered,
            **({} if one.expected is None else {"answer": one.expected}),
            "abstained": one.abstained,
            **({"verdict": one.evidence.verdict} if one.evidence else {}),
            **one.scores,
        }
        for one in answers
    ]
    save_rows(rows, path)


def save_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write records to .jsonl or .csv, else their predictions as `save_predictions`."""
    if path.suffix == ".jsonl":
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_file(path, "".join(lines).encode())
    elif path.suffix == ".csv":
        write_file(path, to_csv(rows).encode())
    else:
        save_predictions([row["predicted"] for row in rows], path)
