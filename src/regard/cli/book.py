"""regard book"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options

if TYPE_CHECKING:
    from regard.studies.study import Study


@click.command()
@click.option("--out", type=options.PATH, required=True, help="Output folder.")
@click.option("--course", metavar="NAME", help="Course to include [all]; see regard courses.")
@click.option("--slides", is_flag=True, help="Also write slides.html: one figure per screen.")
@click.option("--hide-answers", is_flag=True, help="Fold answers until clicked.")
@click.option(
    "--train", is_flag=True, help="Train the studies' models here, instead of stored results."
)
def book(out: Path, course: str | None, slides: bool, hide_answers: bool, train: bool) -> None:
    """Write the questions of five courses with their answers as one offline HTML page.

    Studies and derivations run when the page is written. Studies that train models show stored
    results, unless --train is given.
    """
    from regard.courses import require_course

    if course is not None:
        require_course(course)
    from regard.book.contents import make_book
    from regard.book.page import write_book

    made = make_book(course, train=train, track=_tracked)
    for page in write_book(out, made, hide_answers=hide_answers, slides=slides):
        click.echo(f"{'Slides' if page.name == 'slides.html' else 'Book'}: {page.resolve()}")


def _tracked(studies: "list[Study[Any]]") -> "Iterable[Study[Any]]":
    """Show a progress bar in a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(studies, "Studies", console=console, disable=not console.is_terminal)
