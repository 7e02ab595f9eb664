"""The book as HTML: a page, slides, and one finding for a notebook."""

from base64 import b64encode
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from regard import __version__
from regard.book.contents import Book
from regard.book.documentation import section_html, section_id, section_title
from regard.book.figure_predictions import FIGURE_PREDICTIONS
from regard.book.formula_text import formula_text, label_text, with_formulas
from regard.book.lessons import find_exercise
from regard.book.live import live_data
from regard.book.mathematics import to_mathml, with_math, with_scripts
from regard.book.panels import first_figure, is_wide, same_figure, with_clips_apart
from regard.book.predictions import PREDICTIONS
from regard.book.sliders import SLIDERS, formula_script
from regard.book.slides import make_slides
from regard.courses import COURSES
from regard.derivations import Step
from regard.drawing import COLORS
from regard.errors import UserError
from regard.explorer.page import in_notebook, page_script
from regard.explorer.page import page as explorer_page
from regard.files import content_policy, inert, packaged_text, write_file
from regard.studies.finding import Finding, Verdict
from regard.studies.quotations import corrections_of

_MARKS = {
    Verdict.HOLDS: "✓",
    Verdict.CONDITIONAL: "◐",
    Verdict.DEPENDS: "◔",
    Verdict.FAILS: "✗",
}
_KINDS = {
    "choose": "Multiple choice",
    "compute": "Computation",
    "derive": "Derivation",
    "explain": "Explanation",
    "look": "Observation",
    "program": "Programming",
}
GENERATOR = b'<meta name="generator" content="regard book">'
"""Marker of each page, for recognizing it."""
BESIDE = 560
"""Largest number of letters beside or above a slide's figure; longer captions are left out."""


def write_book(folder: Path, book: Book, *, slides: bool) -> list[Path]:
    """Write index.html, and slides.html if requested; return their paths.

    Raises:
        UserError: the folder is a run folder, or has such a file that isn't of a book.
    """
    require_book_folder(folder)
    pages = {"index.html": book_html(book)}
    if slides:
        pages["slides.html"] = slides_html(book)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        write_file(folder / name, text.encode())
    return [folder / name for name in pages]


def require_book_folder(folder: Path) -> None:
    """Check that a book can be written to a folder.

    Raises:
        UserError: the folder is a run folder, or has an index.html or slides.html that isn't of a
            book.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file, not a folder; choose another --out")
    if (folder / "config.toml").exists():
        raise UserError(f"{folder}: is a run folder; choose another --out")
    for path in (folder / "index.html", folder / "slides.html"):
        if path.exists() and GENERATOR not in path.read_bytes():
            raise UserError(f"{path}: isn't a page of regard book; choose another --out")


def book_html(book: Book) -> str:
    """Return the book as one page; answers are folded until clicked, and open in print."""
    script = _static("formulas.js") + _static("book.js")
    script += formula_script(book.results.findings) + _static("sliders.js")
    if book.lessons:
        script += _static("live_model.js") + _static("lessons.js")
    template = _environment().get_template("book.html")
    page = template.render(book=book, script=script, policy=_policy(script, page_script()))
    return with_clips_apart(page)


def slides_html(book: Book) -> str:
    """Return the book as slides for a projector."""
    script = _static("formulas.js") + _static("slides.js")
    template = _environment().get_template("slides.html")
    return template.render(
        book=book, slides=make_slides(book), script=script, policy=_policy(script)
    )


def finding_html(finding: Finding) -> str:
    """Return one finding, styled for a notebook."""
    template = _environment().get_template("notebook.html")
    return template.render(
        finding=finding, panels=finding.panels(), corrections=corrections_of(finding)
    )


def _policy(*scripts: str) -> str:
    return f"{content_policy(*scripts)}; font-src data:"


def _static(name: str) -> str:
    return packaged_text(f"book/static/{name}")


@cache
def _font() -> str:
    """STIX Two Math as base64; its license is beside it."""
    return b64encode((files("regard.book") / "static" / "STIXTwoMath.woff").read_bytes()).decode()


def _counted(n: int, name: str) -> str:
    """Return a number with its noun, or nothing for 0."""
    plural = f"{name.removesuffix('y')}ies" if name.endswith("y") else f"{name}s"
    return f"{n} {name if n == 1 else plural}" if n else ""


def _fits(finding: Finding) -> bool:
    """Return whether the caption of a figure fits on its slide."""
    texts = (finding.study.claim, finding.condition or "", finding.caption)
    return sum(map(len, texts)) <= BESIDE


def _outcome(step: Step, error: float) -> str:
    """Return the result of a line's numerical check, as text that fits its relation."""
    match step.relation:
        case "=":
            return f"relative error {error:.0e}" if error else "exact"
        case "≈":
            found = "difference within its bound"
        case _:
            found = "bound holds"
    return f"{found}, to a relative {error:.0e}" if error else found


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("regard.book"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "mathml": to_mathml,
        "math": with_math,
        "scripts": with_scripts,
        "section_html": section_html,
        "section_id": section_id,
        "section_title": section_title,
        "find_exercise": find_exercise,
        "framed": lambda view: Markup(in_notebook(view)),
        "inert": lambda data: Markup(inert(data)),
        "first_figure": first_figure,
        "same_figure": same_figure,
        "fits": _fits,
        "formula_text": formula_text,
        "label_text": label_text,
        "with_formulas": with_formulas,
        "is_wide": is_wide,
    }
    environment.globals |= {
        "courses": COURSES,
        "colors": COLORS,
        "counted": _counted,
        "font": _font,
        "kinds": _KINDS,
        "explorer_page": explorer_page,
        "figure_predictions": FIGURE_PREDICTIONS,
        "live_data": live_data,
        "mark": lambda verdict: _MARKS[verdict],
        "outcome": _outcome,
        "predictions": PREDICTIONS,
        "sliders": SLIDERS,
        "style": lambda name: Markup(_static(name)),
        "version": __version__,
    }
    return environment
