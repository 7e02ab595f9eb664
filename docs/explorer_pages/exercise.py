"""An exercise: what is asked, what to look at, what is seen, and what must hold."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill

from explorer_pages.trainings import Training, holds_always, other_values
from regard.explorer.adapters import Adapter
from regard.explorer.look import look, untrained
from regard.explorer.page import View
from regard.runs.run import Run
from regard.studies.finding import Measurement


@dataclass(frozen=True)
class Looked:
    """What one call of `regard look` shows."""

    run: Run | Adapter
    text: str
    second: str | None = None
    compare_text: str | None = None
    compare_untrained: bool = False
    named: str | None = None
    """What the command calls the run, if not by its folder."""

    @property
    def view(self) -> View:
        """The same in Python."""
        view = look(self.run, self.text, self.second)
        if self.compare_text is not None:
            view = view.beside(look(self.run, self.compare_text, self.second))
        if self.compare_untrained:
            view = view.beside(look(untrained(self.run), self.text, self.second))
        return view

    def command(self, out: str) -> list[str]:
        """The arguments of `regard` that write it as a page."""
        texts = [text for text in (self.text, self.second) if text is not None]
        versus = [] if self.compare_text is None else ["--compare-text", self.compare_text]
        versus += ["--compare-untrained"] if self.compare_untrained else []
        found = f"hf:{self.run.name}" if not isinstance(self.run, Run) else str(self.run.path)
        return ["look", self.named or found, *texts, *versus, "--out", out]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A drawing, which needs no browser."""

    png: bytes
    alt: str


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A section of the docs."""

    name: str
    """What its files are called."""
    title: str
    asked: str
    """Where a course asks it, and what."""
    looked: Looked
    picture: Picture
    seen: Sequence[str]
    """Paragraphs and tables of Markdown."""
    numbers: Sequence[Measurement]
    """On which the paragraphs depend."""


def section(exercise: Exercise, trainings: Sequence[Training] = ()) -> str:
    """An exercise as Markdown, with the range of each number over other trainings."""
    command = shlex.join(["regard", *exercise.looked.command(f"{exercise.name}.html")])
    return "\n\n".join(
        [
            f"## {exercise.title}",
            f"*{exercise.asked}*",
            f"```\n{command}\n```",
            f"![{exercise.picture.alt}]({exercise.name}.png)",
            *map(_wrapped, exercise.seen),
            table(
                ["measured", "value", "all trainings", "expected", "holds"],
                [
                    _measured(n, other_values(trainings, exercise.name, n.name))
                    for n in exercise.numbers
                ],
            ),
        ]
    )


def _measured(number: Measurement, others: Sequence[float]) -> list[str]:
    """A row of the table: a number whose bounds hold only after some trainings is marked ~."""
    values = [number.measured, *others]
    spread = f"{min(values):.3g} to {max(values):.3g}"
    mark = "~" if not holds_always(number, others) else "✓" if number.holds else "✗"
    return [number.name, f"{number.measured:.3g}", spread, number.expected, mark]


def _wrapped(text: str) -> str:
    """A paragraph in lines; a table as it is."""
    return text if text.startswith("|") else fill(text, 110, break_on_hyphens=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown; numbers have two decimals."""
    lines = [columns, ["---"] * len(columns), *([_cell(x) for x in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(x: object) -> str:
    return f"{x:.2f}" if isinstance(x, float) else str(x).replace("|", "\\|")
