"""regard exercises"""

from itertools import groupby
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from regard.cli import options
from regard.cli.main import Group
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.exercises.grade import Grade

FOLDER = click.argument("folder", metavar="DIR", type=options.PATH)
SEED = click.option(
    "--seed",
    type=options.SEEDS,
    help="Seed of the student. Default: that of the notebooks.",
)


@click.group(cls=Group)
def exercises() -> None:
    """Write notebooks of exercises, and grade them."""


@exercises.command()
@FOLDER
@click.option("--course", metavar="NAME", help="Course to write. Default: all five.")
@click.option(
    "--seed",
    type=options.SEEDS,
    help="Seed of the student's random numbers. Default: drawn.",
)
def new(folder: Path, course: str | None, seed: int | None) -> None:
    """Write notebooks with blanks to fill and random numbers of a student."""
    import secrets

    from regard.exercises.notebook import notebook
    from regard.exercises.registry import EXERCISES, exercises_of
    from regard.files import write_folder

    if folder.exists():
        raise UserError(f"{folder}: exists; choose another folder, or remove it")
    seed = secrets.randbelow(2**32) if seed is None else seed
    chosen = EXERCISES if course is None else {course: exercises_of(course)}
    files = {
        f"{name}.ipynb": options.to_json(notebook(group, seed)) + "\n"
        for name, group in chosen.items()
    }
    write_folder(folder, {name: text.encode() for name, text in files.items()})
    count = sum(map(len, chosen.values()))
    click.echo(f"{count} exercises, seed {seed}: " + ", ".join(str(folder / x) for x in files))
    click.echo(f"To solve them: jupyter lab {quote(str(folder))}")
    click.echo(f"To grade them: regard exercises check {quote(str(folder))}")


@exercises.command()
@FOLDER
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--results",
    type=options.OutputFile(),
    help="File to write for Gradescope, such as results.json.",
)
@click.option(
    "--time-limit",
    type=click.IntRange(1, 600),
    default=5,
    help="Seconds of processor time that an exercise may take.",
)
@SEED
def check(
    folder: Path, as_json: bool, results: Path | None, time_limit: int, seed: int | None
) -> None:
    """Grade the notebooks in DIR: points, and a hint for each known mistake.

    Grading runs the student's code, in processes with limits of time and memory but with your
    rights: grade code that you don't trust in a container.
    """
    from regard.exercises.grade import as_gradescope, grade_folder
    from regard.exercises.grade import as_json as described
    from regard.exercises.sandbox import Sandbox
    from regard.files import write_file

    grades = grade_folder(folder, Sandbox(seconds=time_limit).run, seed=seed)
    if results:
        write_file(results, as_gradescope(grades))
    if as_json:
        click.echo(options.to_json(described(grades)))
    else:
        _print(grades)


@exercises.command()
@FOLDER
@SEED
def key(folder: Path, seed: int | None) -> None:
    """Print the answer key of the notebooks in DIR: solutions, and results for their numbers."""
    from regard.exercises.grade import notebooks, require_seed
    from regard.exercises.notebook import answer_key, read_notebook
    from regard.exercises.registry import EXERCISES

    for course, path in notebooks(folder).items():
        own = require_seed(read_notebook(path), path) if seed is None else seed
        click.echo(answer_key(EXERCISES[course], own))


def _print(grades: "list[Grade]") -> None:
    """Print a table for a terminal."""
    from rich.markup import escape
    from rich.table import Column, Table

    from regard.exercises.grade import totals

    names = ("part", "exercise", "points", "what is wrong")
    columns = (Column(name, no_wrap=name == "part", overflow="fold") for name in names)
    table = Table(*columns, box=None, pad_edge=False)
    for course, of_course in groupby(grades, key=lambda grade: grade.course):
        table.add_row(f"\n[bold]{course}[/bold]")
        for grade in of_course:
            points = f"{grade.score} of {grade.max_score}"
            table.add_row(grade.part, grade.title, points, escape(grade.hint or grade.reason))
    options.print_wide(table, width=160)
    score, most = totals(grades)
    click.echo(f"\n{score} of {most} points")
