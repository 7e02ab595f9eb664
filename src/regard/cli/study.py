"""regard study"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.cli.main import Group

if TYPE_CHECKING:
    from rich.table import Table

    from regard.studies.finding import Finding
    from regard.studies.study import Study


SEEDS = 5
"""Largest number of seeds with a column each; of more, the table has the range."""


@click.group(cls=Group)
def study() -> None:
    """Run experiments that answer questions about attention."""


@study.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--course", metavar="NAME", help="Course whose questions to list.")
def list_(as_json: bool, course: str | None) -> None:
    """List studies by theme, with their questions and the courses that ask them."""
    from rich.table import Column, Table

    from regard.courses import require_course
    from regard.studies.registry import THEMES

    if course is not None:
        require_course(course)
    chosen = {
        theme.name: [
            study
            for study in theme.studies
            if course is None or any(place.split()[0] == course for place in study.asked)
        ]
        for theme in THEMES
    }
    if as_json:
        described = [_described(theme, study) for theme in chosen for study in chosen[theme]]
        click.echo(options.to_json(described))
        return
    name = Column("study", no_wrap=True)
    table = Table(name, "question", "asked in", "takes", box=None, pad_edge=False)
    for theme, studies in chosen.items():
        if studies:
            table.add_row(f"\n[bold]{theme}[/bold]")
        for study in studies:
            takes = "minutes" if study.trains else "seconds"
            table.add_row(study.name, study.question, study.asked_in, takes)
    options.print_wide(table)


@study.command(add_help_option=False)
@click.argument("name", required=False)
@click.argument("parameters", nargs=-1, metavar="[PARAMETER=VALUE]...")
@click.option(
    "--out",
    type=options.FOLDER,
    default=Path("runs/studies"),
    help="Folder for figure and measurements.",
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
    out: Path,
    help_: bool,
) -> None:
    """Run study NAME; print and draw its measurements.

    seeds=5 runs a study that draws at random with five seeds.
    """
    if name is None:
        click.echo(context.get_help())
        context.exit(0 if help_ else 2)
    from regard.studies.registry import find_study

    chosen = find_study(name)
    if help_:
        _print_help(chosen)
        return
    finding = chosen.with_texts(parameters)
    _print(finding)  # before the folder turns out not to be writable
    places = finding.save(out)
    files = [str(place) for place in places if place.suffix != ".html"]
    click.echo("\nFigure and measurements: " + ", ".join(files))
    for place in places:
        if place.suffix == ".html":
            click.echo(f"Look inside: {place}")


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
    if "seed" in study.defaults:
        lines.append("  seeds=N  number of seeds, from seed on; reports the range, each if few")
    click.echo("\n".join(lines))


def _print(finding: "Finding") -> None:
    """Print the result for a terminal."""
    from rich.console import Console
    from rich.table import Table

    from regard.book.formula_text import formula_text
    from regard.courses import COURSES
    from regard.studies.quotations import corrections_of

    console = Console(highlight=False, markup=False, emoji=False)
    console.print(finding.study.question, style="bold", end="\n\n")
    console.print(finding.study.claim)
    console.print(f"\n    {formula_text(finding.study.formula)}\n")
    console.print(_measurements(finding))
    if finding.table:
        more = Table(*finding.table.columns, box=None, pad_edge=False)
        for row in finding.table.rows:
            more.add_row(*row)
        console.print("", more, sep="\n")
    console.print("", finding.study.explanation, sep="\n")
    for correction in corrections_of(finding):
        console.print(
            f"\n{COURSES[correction.course]} says: {correction.says}\nCorrect: {correction.right}"
        )
    condition = f": {finding.condition}" if finding.condition else ""
    console.print(f"\nThe claim {finding.conclusion}{condition}.")


def _measurements(finding: "Finding") -> "Table":
    """Return the measurements with their bounds; of seeds the range, and each if they are few."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    shown.add_column("measured")
    single = len(finding.seeds) <= SEEDS
    if single:
        for seed in finding.seeds or ("",):
            shown.add_column(f"seed {seed}" if finding.seeds else "", justify="right")
    if finding.seeds:
        shown.add_column("range", justify="right")
    shown.add_column("claimed", justify="right")
    shown.add_column("")
    for row in (*finding.rows, *finding.outside_condition_rows):
        digits = ".4g" if finding.seeds else ".6g"
        given = row.values if single else ()
        values = ["" if value is None else f"{value:{digits}}" for value in given]
        ranges = [row.range] if finding.seeds else []
        shown.add_row(row.name, *values, *ranges, row.expected, row.mark)
    return shown
