"""regard study"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli.main import Group

if TYPE_CHECKING:
    from regard.studies.pages import Chapter
    from regard.studies.study import Finding, Study

ONLY = click.option("--only", multiple=True, metavar="THEME", help="Theme to include; repeatable.")


@click.group(cls=Group)
def study() -> None:
    """Run experiments that answer questions about attention."""


@study.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--course", metavar="NAME", help="Course whose questions to list.")
def list_(as_json: bool, course: str | None) -> None:
    """List studies by theme, with their questions and the courses that ask them."""
    import json

    from rich.console import Console
    from rich.table import Table

    from regard.errors import UserError, alternatives
    from regard.studies.registry import THEMES
    from regard.studies.study import COURSES

    if course is not None and course not in COURSES:
        raise UserError(f"--course {course}: no such course; {alternatives(course, COURSES)}")
    chosen = [
        (theme.name, study)
        for theme in THEMES
        for study in theme.studies
        if course is None or any(place.split()[0] == course for place in study.asked)
    ]
    if as_json:
        described = [_described(theme, study) for theme, study in chosen]
        click.echo(json.dumps(described, indent=1, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("study", "question", "asked in", "takes"):
        table.add_column(column, no_wrap=column == "study")
    shown = ""
    for theme, study in chosen:
        if theme != shown:
            table.add_row(f"\n[bold]{theme}[/bold]")
        shown = theme
        takes = "minutes" if study.trains else "seconds"
        table.add_row(study.name, study.question, study.asked_in, takes)
    console = Console()
    console.print(table) if console.is_terminal else Console(width=200).print(table)


@study.command(add_help_option=False)
@click.argument("name", required=False)
@click.argument("parameters", nargs=-1, metavar="[PARAMETER=VALUE]...")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for figure and measurements [runs/studies].",
)
@click.option(
    "-h",
    "--help",
    "help_",
    is_flag=True,
    help="Show this message, or the parameters of study NAME.",
)
@click.pass_context
def run(
    context: click.Context,
    name: str | None,
    parameters: tuple[str, ...],
    out: Path | None,
    help_: bool,
) -> None:
    """Run study NAME; print and draw its measurements."""
    if name is None:
        click.echo(context.get_help())
        context.exit(0 if help_ else 2)
    from regard.studies.registry import find_study

    chosen = find_study(name)
    if help_:
        _print_help(chosen)
        return
    finding = chosen.with_texts(parameters)
    places = finding.save(out or Path("runs/studies"))
    _print(finding)
    files = [str(place) for place in places if place.suffix != ".html"]
    click.echo("\nFigure and measurements: " + ", ".join(files))
    for place in places:
        if place.suffix == ".html":
            click.echo(f"Look inside: {place.resolve()}")


@study.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Output folder.")
@ONLY
@click.option("--hide-answers", is_flag=True, help="Fold answers until clicked.")
@click.option(
    "--train", is_flag=True, help="Train the models here, up to 20 minutes the first time."
)
def book(out: Path, only: tuple[str, ...], hide_answers: bool, train: bool) -> None:
    """Write all studies as one offline HTML page, with their figures and measurements.

    Studies that train models show stored results, unless --train is given.
    """
    from regard.studies.pages import write_book

    page = write_book(out, _chapters(only, train=train), hide_answers=hide_answers)
    click.echo(f"Book: {page.resolve()}")


@study.command()
def index() -> None:
    """Print a Markdown table of the courses' questions, with study, claim and verdict."""
    from regard.studies.registry import all_studies
    from regard.studies.study import COURSES

    click.echo("| asked in | question | study | claim | verdict |\n|---|---|---|---|---|")
    asked = sorted(
        ((place.split(), study) for study in all_studies() for place in study.asked),
        key=lambda pair: [part.zfill(3) for part in re.split(r"(\d+)", " ".join(pair[0]))],
    )
    for (course, part), study in asked:
        cells = (
            f"{COURSES[course]}: {part}",
            study.question,
            f"`{study.name}`",
            study.claim,
            study.stored_result().verdict,
        )
        click.echo(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")


def _chapters(only: tuple[str, ...], *, train: bool) -> "list[Chapter]":
    """Run or load the studies of some themes, with a progress bar."""
    from regard.studies.pages import Chapter
    from regard.studies.registry import choose_themes

    themes = choose_themes(only)
    found = {}
    for study in _tracked([study for theme in themes for study in theme.studies]):
        found[study.name] = study.stored_result() if study.trains and not train else study()
    return [Chapter(theme, tuple(found[study.name] for study in theme.studies)) for theme in themes]


def _tracked(studies: "list[Study[Any]]") -> "Iterable[Study[Any]]":
    """Show a progress bar in a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(studies, "Studies", console=console, disable=not console.is_terminal)


def _described(theme: str, study: "Study[Any]") -> dict[str, object]:
    return {
        "theme": theme,
        "id": study.name,
        "asked": study.asked,
        "question": study.question,
        "claim": study.claim,
        "trains": study.trains,
        "parameters": study.defaults,
    }


def _print_help(study: "Study[Any]") -> None:
    """Print question, claim and parameters of a study."""
    lines = [
        f"Usage: regard study run {study.name} [PARAMETER=VALUE]... [--out FOLDER]",
        "",
        *(f"  {line}" for line in (study.question, "", study.claim)),
        "",
        "Parameters:",
    ]
    lines += [f"  {p.name}={p.default}  {p.description} ({p.range})" for p in study.parameters]
    click.echo("\n".join(lines))


def _print(finding: "Finding") -> None:
    """Print the result for a terminal."""
    from rich.console import Console
    from rich.table import Table

    from regard.studies.study import COURSES

    console = Console(highlight=False)
    console.print(f"[bold]{finding.study.question}[/bold]\n", finding.claim, sep="\n")
    console.print(f"\n    {finding.formula}\n", markup=False)
    shown = Table(box=None, pad_edge=False)
    shown.add_column("measured")
    shown.add_column("", justify="right")
    shown.add_column("claimed", justify="right")
    shown.add_column("")
    for number in (*finding.numbers, *finding.evidence.outside_condition):
        mark = ("✓" if number.holds else "✗") if number.expected else ""
        shown.add_row(number.name, f"{number.measured:.6g}", number.expected, mark)
    console.print(shown)
    if finding.table:
        more = Table(*finding.table.columns, box=None, pad_edge=False)
        for row in finding.table.rows:
            more.add_row(*row)
        console.print("", more, sep="\n")
    console.print("", finding.explanation, sep="\n", markup=False)
    for correction in finding.study.corrections:
        console.print(
            f"\n{COURSES[correction.course]} says: {correction.says}\nCorrect: {correction.right}",
            markup=False,
        )
    condition = f": {finding.evidence.condition}" if finding.evidence.condition else ""
    console.print(f"\nThe claim {finding.verdict}{condition}.", markup=False)
