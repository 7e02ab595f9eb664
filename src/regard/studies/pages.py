"""Findings as HTML: one for a notebook, or all as a book in a single offline file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from latex2mathml.converter import convert as to_mathml

from regard import __version__
from regard.explorer.page import in_notebook
from regard.files import write_file
from regard.studies.finding import Verdict
from regard.studies.registry import Theme
from regard.studies.study import COURSES, Finding

_MARKS = {Verdict.HOLDS: "✓", Verdict.CONDITIONAL: "◐", Verdict.FAILS: "✗"}


@dataclass(frozen=True)
class Chapter:
    """The findings of a theme."""

    theme: Theme
    findings: tuple[Finding, ...]


def finding_html(finding: Finding) -> str:
    """Return one finding, styled for a notebook."""
    return _environment().get_template("alone.html").render(finding=finding)


def book_html(chapters: Sequence[Chapter], *, hide_answers: bool) -> str:
    """Return all findings with a table of contents; `hide_answers` folds the answers."""
    template = _environment().get_template("book.html")
    return template.render(chapters=chapters, hide_answers=hide_answers, version=__version__)


def write_book(folder: Path, chapters: Sequence[Chapter], *, hide_answers: bool) -> Path:
    """Write index.html and the files of each finding; return the path of index.html."""
    for chapter in chapters:
        for finding in chapter.findings:
            finding.save(folder / "findings")
    page = folder / "index.html"
    write_file(page, book_html(chapters, hide_answers=hide_answers).encode())
    return page


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("regard.studies"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["mathml"] = lambda tex: to_mathml(tex, display="block")
    environment.filters["framed"] = in_notebook
    environment.globals["courses"] = COURSES
    environment.globals["mark"] = lambda verdict: _MARKS[verdict]
    return environment
