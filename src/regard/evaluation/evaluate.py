"""A run on a file of questions: score, predictions, report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import to_toml
from regard.errors import UserError
from regard.evaluation import figures
from regard.evaluation.answers import Answer, answer_questions
from regard.evaluation.confidence import Chosen, choose_signal
from regard.evaluation.report import AnswerTable, Figure, Report, ShownAnswer, attention_view
from regard.files import write_file
from regard.metrics import Interval, accuracy, exact_match, risk_coverage
from regard.runs.environment import ExecutionEnvironment
from regard.runs.run import Run
from regard.tasks.examples import Example

SHOWN = 12
"""Answers of each kind in a report."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a run answered, and how it scores."""

    answers: list[Answer]
    accuracy: Interval | None
    """None where the questions have no answers."""
    confidence: Chosen | None
    """Which signal tells right from wrong answers; None where there are too few of a kind."""

    def lines(self) -> list[str]:
        """Return the scores as text."""
        lines = []
        if self.accuracy:
            lines += [f"accuracy: {self.accuracy.percent()} of {len(self.answers)} questions"]
        return lines + [
            f"AUROC right against wrong, by {name}: {area:.3f}"
            for name, area in (self.confidence.all_aurocs.items() if self.confidence else ())
        ]

    def figures(self) -> dict[str, Any]:
        """Return the scores for a JSON file."""
        figures: dict[str, Any] = {"questions": len(self.answers)}
        if self.accuracy:
            figures |= {
                "accuracy": self.accuracy.value,
                "low": self.accuracy.low,
                "high": self.accuracy.high,
                "correct": sum(answer.correct for answer in self.answers),
            }
        if self.confidence:
            figures["auroc"] = self.confidence.all_aurocs
        return figures

    @property
    def answered(self) -> list[str]:
        """The predicted answers."""
        return [answer.answered for answer in self.answers]


def evaluate(
    run: Run,
    questions: Sequence[Example],
    environment: ExecutionEnvironment,
    *,
    paraphrases: Sequence[str] = (),
    seed: int = 0,
) -> Evaluation:
    """Answer all questions, and score the answers where they are known.

    `seed` draws the half of the answers on which the signal is chosen.

    Raises:
        UserError: a question can't be encoded or is too long.
    """
    answers = answer_questions(run, questions, environment, paraphrases=paraphrases)
    if questions[0].answer is None:
        return Evaluation(answers=answers, accuracy=None, confidence=None)
    right = [answer for answer in answers if answer.correct]
    wrong = [answer for answer in answers if not answer.correct]
    enough = min(len(right), len(wrong)) >= 4
    return Evaluation(
        answers=answers,
        accuracy=accuracy([answer.correct for answer in answers]),
        confidence=choose_signal(right, wrong, seed=seed) if enough else None,
    )


def baseline_accuracy(questions: Sequence[Example], guess: str) -> Interval:
    """The accuracy of giving always the same answer.

    Raises:
        UserError: the questions have no answers.
    """
    if questions[0].answer is None:
        raise UserError(f"{questions[0].where}: a baseline needs questions with answers")
    return accuracy([exact_match(guess, question.answer or "") for question in questions])


def save_predictions(answers: Sequence[str], path: Path) -> None:
    """A line for every question: the answer alone, as the course's evaluation expects it."""
    write_file(path, "".join(" ".join(answer.split()) + "\n" for answer in answers).encode())


def evaluation_report(
    run: Run,
    evaluation: Evaluation,
    environment: ExecutionEnvironment,
    *,
    source: str,
    seconds: float,
) -> Report:
    """The report of an evaluation."""
    answers = evaluation.answers
    signal = evaluation.confidence.signal if evaluation.confidence else "probability"
    results = {"questions": str(len(answers))}
    shown = []
    if evaluation.accuracy:
        results["accuracy"] = evaluation.accuracy.percent()
        shown.append(risk_coverage_figure({signal: answers}, signal))
    if evaluation.confidence:
        for name, area in evaluation.confidence.all_aurocs.items():
            results[f"AUROC right against wrong, {name}"] = f"{area:.3f}"
    return Report(
        title=f"{run.path.name} on {Path(source).name}",
        summary=f"The run {run.path} was asked the questions of {source}.",
        signal=signal,
        results=results,
        figures=shown,
        attention=attention_view(run, answers[0], environment),
        tables=answer_tables(answers, signal, {}),
        facts=environment.describe() | {"seed": run.recipe.seed, "seconds": round(seconds, 1)},
        configuration=to_toml(run.recipe),
    )


def answer_tables(
    answers: Sequence[Answer], signal: str, stated: Mapping[str, Sequence[str]]
) -> list[AnswerTable]:
    """Right and wrong answers, the most confident first; `stated` maps a question to the truth."""

    def table(title: str, note: str, chosen: Sequence[Answer]) -> AnswerTable:
        most_confident = sorted(chosen, key=lambda a: -a.signals[signal])[:SHOWN]
        rows = [
            ShownAnswer(answer=a, confidence=a.signals[signal], stated=stated.get(a.question, ()))
            for a in most_confident
        ]
        return AnswerTable(title=title, note=note, rows=rows)

    unknown = [a for a in answers if a.expected is None]
    right = [a for a in answers if a.correct]
    wrong = [a for a in answers if a.expected is not None and not a.correct]
    tables = [
        table("Right", f"{len(right)} answers, the most confident first", right),
        table("Wrong", f"{len(wrong)} answers, the most confident first", wrong),
        table("No answer known", f"{len(unknown)} answers, the most confident first", unknown),
    ]
    return [t for t in tables if t.rows]


def risk_coverage_figure(groups: dict[str, Sequence[Answer]], signal: str) -> Figure:
    """Risk against coverage, a curve for each group of answers."""
    curves = {}
    for name, answers in groups.items():
        confidence = [answer.signals[signal] for answer in answers]
        coverage, risk = risk_coverage(confidence, [answer.correct for answer in answers])
        curves[name] = (coverage.tolist(), risk.tolist())
    return Figure(
        svg=figures.line_chart(
            curves,
            x="share of questions answered",
            y="share of them wrong",
            title="Risk",
        ),
        caption="If only the most confident answers are given: how many of them are wrong?",
    )
