"""report.html: one file, readable offline, of what an evaluation found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import torch

from regard.evaluation.answers import SIGNALS, Answer
from regard.explorer.attention_maps import Panel, end_of, gather_maps
from regard.explorer.intercept import capture_attention
from regard.explorer.page import embedded, embedding_policy, serialize
from regard.files import write_file
from regard.runs.environment import ExecutionEnvironment
from regard.runs.run import Run


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A drawing and what is to be seen in it."""

    svg: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class ShownAnswer:
    """An answer with its confidence and with what the text really says."""

    answer: Answer
    confidence: float
    stated: Sequence[str] = ()
    """Sentences of the text that state the truth; none where the text says nothing."""


@dataclass(frozen=True, kw_only=True)
class AnswerTable:
    """Answers of one kind."""

    title: str
    note: str
    rows: Sequence[ShownAnswer]
    invented: bool = False
    """Whether nobody could know these answers, so that all are wrong."""

    @property
    def without_truth(self) -> str:
        """What stands in the place of a truth that isn't there."""
        return "The text says nothing." if self.invented else "Not known."

    def verdict(self, row: ShownAnswer) -> str:
        """Right, wrong, or neither."""
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
    results: Mapping[str, str]
    """Name → figure with its interval."""
    figures: Sequence[Figure] = ()
    attention: str = ""
    """The attention of all heads to one question, as a part of a page; empty without attention."""
    tables: Sequence[AnswerTable] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    """Versions, seed, hardware, time."""
    configuration: str = ""

    def save(self, path: Path) -> None:
        """Write the page."""
        write_file(path, self.html().encode())

    def html(self) -> str:
        """The page, complete in itself."""
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("regard.evaluation"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        return environment.get_template("report.html").render(
            report=self, signals=SIGNALS, policy=embedding_policy()
        )


# Attention of an answer

LONGEST = 48
"""Most tokens to show; of a longer question, the last ones."""


def attention_view(run: Run, answer: Answer, environment: ExecutionEnvironment) -> str:
    """Return the attention of all heads to a question, as a part of a page.

    Empty if the model has no attention.
    """
    panel = attention_of(run, answer, environment)
    title = f"While answering: {answer.question}"
    return embedded(serialize(title, [panel])) if panel.maps else ""


def attention_of(run: Run, answer: Answer, environment: ExecutionEnvironment) -> Panel:
    """Return the attention of all heads to a question and the start of its answer."""
    prompt = run.template.prompt.around(run.tokenizer.encode(answer.question))
    ids = run.template.open_answer(prompt)
    records = capture_attention(run.model, torch.tensor([ids], device=environment.device))
    maps = gather_maps(records, [run.tokenizer.decode([i]) for i in ids])
    return Panel(run.path.name, tuple(end_of(one, LONGEST) for one in maps), answer.question)
