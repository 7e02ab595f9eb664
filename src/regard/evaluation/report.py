"""report.html: the results of an evaluation, in one file that is readable offline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import torch

from regard.config import to_toml
from regard.corpus.evidence import VERDICTS, Passage, Verdict
from regard.drawing import line_chart
from regard.environment import ExecutionEnvironment
from regard.evaluation.answers import Answer
from regard.evaluation.evaluate import Evaluation
from regard.evaluation.tasks import count_line
from regard.explorer.attention_maps import Panel, end_of, gather_maps
from regard.explorer.intercept import capture_attention
from regard.explorer.page import View, embedding_policy
from regard.files import write_file
from regard.metrics import risk_coverage
from regard.models.builders import LanguageModel
from regard.models.perceiver import PerceiverDecoder
from regard.runs.run import Run
from regard.uncertainty.abstention import Guarantee
from regard.uncertainty.signals import SIGNALS

PASSAGES = 5
"""Largest number of sentences of evidence to show."""
COUNTED = "Verdicts"
"""The group of results that counts verdicts by name."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """An SVG figure with its caption."""

    svg: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class ShownAnswer:
    """An answer with its confidence and sentences of the text that state the right answer."""

    answer: Answer
    confidence: float
    stated: Sequence[str] = ()
    """Sentences of the text that state the right answer; empty if there are none."""
    verdict: Verdict | None = None
    """Verdict by the known right answer, if shown; `answer` has that by the training text."""

    @property
    def passages(self) -> Sequence[Passage]:
        """Sentences of the training text that contain the answer, and that contradict it."""
        evidence = self.answer.evidence
        if evidence is None:
            return ()
        other = evidence.contradiction
        return [*evidence.passages[:PASSAGES], *(other.passages[:PASSAGES] if other else ())]


@dataclass(frozen=True, kw_only=True)
class AnswerTable:
    """Answers of one kind."""

    title: str
    note: str
    rows: Sequence[ShownAnswer]
    invented: bool = False
    """Whether the text doesn't state the right answers, so that all answers are wrong."""

    @property
    def without_truth(self) -> str:
        """Text to show instead of the right answer, if it is unknown."""
        return "The text says nothing." if self.invented else "Not known."

    def verdict(self, row: ShownAnswer) -> str:
        """Return whether an answer is good, bad, or of unknown correctness."""
        if row.answer.expected is None and not self.invented:
            return "unknown"
        return "good" if row.answer.correct else "bad"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Sections, in their order."""

    title: str
    summary: str
    signal: str
    """The signal shown as confidence."""
    results: Mapping[str, Mapping[str, str]]
    """Groups of results: name → figure with its interval."""
    examples: Sequence[ShownAnswer] = ()
    """Answers at the top of the page, with verdicts; if any, figures and tables are collapsed."""
    picture: Figure | None = None
    """The figure below these answers."""
    figures: Sequence[Figure] = ()
    attention: str = ""
    """Attention of all heads on one question, as a part of a page; empty without attention."""
    tables: Sequence[AnswerTable] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    """Versions, seed, hardware, time."""
    configuration: str = ""

    @property
    def verdicts(self) -> dict[str, str]:
        """Definitions of the verdicts in the results and tables."""
        rows = (row for table in self.tables for row in table.rows)
        shown = {row.answer.evidence.verdict for row in rows if row.answer.evidence}
        shown |= {row.verdict for row in self.examples if row.verdict}
        counted = set(self.results.get(COUNTED, ()))
        return {name: text for name, text in VERDICTS.items() if name in shown | counted}

    def save(self, path: Path) -> None:
        """Write the page."""
        write_file(path, self.html().encode())

    def html(self) -> str:
        """Return a self-contained page."""
        return render_page("report.html", report=self, signals=SIGNALS)


def render_page(template: str, **values: object) -> str:
    """Render a template of this package, with the content security policy of offline pages."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("regard.evaluation"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values, policy=embedding_policy())


# The report of an evaluation

SHOWN = 12
"""Answers of each kind in a report."""


def evaluation_report(
    run: Run,
    evaluation: Evaluation,
    environment: ExecutionEnvironment,
    *,
    source: str,
    seconds: float,
) -> Report:
    """Return the report of an evaluation."""
    answers = evaluation.answers
    signal = evaluation.confidence.signal if evaluation.confidence else "confidence"
    signal = "confidence" if evaluation.guarantee else signal
    scores = {"questions": count_line(len(answers), "questions", evaluation.in_training)}
    shown = []
    if evaluation.accuracy:
        scores["accuracy"] = evaluation.accuracy.percent()
        known = evaluation.guarantee
        point = guaranteed_point(known, answers) if known else None
        shown.append(risk_coverage_figure({signal: (answers, signal)}, points=point))
    if evaluation.guarantee:
        scores["answered"] = evaluation.abstention(evaluation.guarantee).removeprefix("answered: ")
    results: dict[str, Mapping[str, str]] = {"Scores": scores}
    if evaluation.verdicts:
        results[COUNTED] = {name: str(count) for name, count in evaluation.verdicts.items()}
    if evaluation.confidence:
        areas = evaluation.confidence.all_aurocs
        results["AUROC, right against wrong"] = {n: f"{area:.3f}" for n, area in areas.items()}
    return Report(
        title=f"{run.path.name} on {Path(source).name}",
        summary=f"The run {run.path} was asked the questions of {source}.",
        signal=signal,
        results=results,
        figures=shown,
        attention=attention_view(run, answers[0], environment, evaluation.history),
        tables=answer_tables(answers, signal, {}),
        facts=environment.describe() | {"seed": run.recipe.seed, "seconds": round(seconds, 1)},
        configuration=to_toml(run.recipe),
    )


def guaranteed_point(
    guarantee: Guarantee, answers: Sequence[Answer]
) -> dict[str, tuple[float, float]]:
    """Return coverage and risk of a calibrated threshold, as a named point; none if all abstain."""
    given = [answer for answer in answers if not answer.abstained]
    if not given:
        return {}
    risk = sum(not answer.correct for answer in given) / len(given)
    name = f"calibrated to at most {guarantee.max_error:.3g} wrong"
    return {name: (len(given) / len(answers), risk)}


def answer_tables(
    answers: Sequence[Answer], signal: str, stated: Mapping[str, Sequence[str]]
) -> list[AnswerTable]:
    """Return tables of confident mistakes, of doubtful right answers and of unknown ones.

    `stated` maps a question to sentences of the text that state the right answer.
    """

    def table(title: str, order: str, chosen: Sequence[Answer]) -> AnswerTable:
        rows = [
            ShownAnswer(answer=a, confidence=a.score(signal), stated=stated.get(a.question, ()))
            for a in chosen[:SHOWN]
        ]
        return AnswerTable(title=title, note=f"{len(chosen)} answers, {order} first", rows=rows)

    ordered = sorted(answers, key=lambda a: -a.score(signal))
    unknown = [a for a in ordered if a.expected is None]
    right = [a for a in ordered if a.correct]
    wrong = [a for a in ordered if a.expected is not None and not a.correct]
    tables = [
        table("Wrong", "the most confident", wrong),
        table("Right", "the least confident", right[::-1]),
        table("No answer known", "the most confident", unknown),
    ]
    return [t for t in tables if t.rows]


def risk_coverage_figure(
    groups: Mapping[str, tuple[Sequence[Answer], str]],
    *,
    points: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Plot risk against coverage, a curve for each group of answers and signal; named points."""
    curves = {}
    for name, (answers, signal) in groups.items():
        confidence = [answer.score(signal) for answer in answers]
        coverage, risk = risk_coverage(confidence, [answer.correct for answer in answers])
        curves[name] = (coverage.tolist(), risk.tolist())
    return Figure(
        svg=line_chart(
            curves,
            x="share of questions answered",
            y="share of them wrong",
            title="Risk",
            points=points,
        ),
        caption="If only the most confident answers are given: how many of them are wrong?",
    )


# Attention of an answer

LONGEST = 48
"""Largest number of tokens to show: the last ones of a longer question."""


def attention_view(
    run: Run,
    answer: Answer,
    environment: ExecutionEnvironment,
    history: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the attention of all heads to a question, as a part of a page.

    `history` are earlier questions and answers of the conversation. Empty if the model has no
    attention, or attends to latents or from a target.
    """
    if not isinstance(run.model, LanguageModel) or isinstance(run.model.body, PerceiverDecoder):
        return ""
    panel = attention_of(run, answer, environment, history)
    title = f"While answering: {answer.question} → {answer.answered or '(nothing)'}"
    return View(title, (panel,)).with_detail(()).embed() if panel.maps else ""


def attention_of(
    run: Run,
    answer: Answer,
    environment: ExecutionEnvironment,
    history: Sequence[tuple[str, str]] = (),
) -> Panel:
    """Return the attention of all heads to a question and the start of its answer."""
    template = run.template.with_history(history)
    ids = template.open_answer(template.prompt.around(run.tokenizer.encode(answer.question)))
    records = capture_attention(run.model, torch.tensor([ids], device=environment.device))
    maps = gather_maps(records, list(map(run.tokenizer.token_text, ids)))
    return Panel(run.path.name, tuple(end_of(one, LONGEST) for one in maps), answer.question)
