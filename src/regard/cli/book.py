"""regard book"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options

if TYPE_CHECKING:
    from regard.studies.study import Study


@click.command()
@click.option("--out", type=options.FOLDER, required=True, help="Output folder.")
@click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    help='Course, part ("jhu-hw5 3.1"), theme or study to include; repeatable [all].',
)
@click.option("--slides", is_flag=True, help="Also write slides.html for a projector.")
@click.option(
    "--train", is_flag=True, help="Train the studies' models here, instead of stored results."
)
def book(out: Path, only: tuple[str, ...], slides: bool, train: bool) -> None:
    """Write twelve lessons and the questions of five courses, answered, as one offline HTML page.

    Answers open on a click, and in print. Studies and derivations run when the page is written.
    Studies that train models show stored results, unless --train is given. --only chooses
    questions and studies, in its order; regard courses and regard study list show the names.
    """
    from regard.book.contents import make_book
    from regard.book.page import require_book_folder, write_book

    require_book_folder(out)
    made = make_book(only, train=train, track=_tracked)
    for page in write_book(out, made, slides=slides):
        click.echo(f"{'Slides' if page.name == 'slides.html' else 'Book'}: {page}")


def _tracked(studies: "list[Study[Any]]") -> "Iterable[Study[Any]]":
    """Show a progress bar in a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(studies, "Studies", console=console, disable=not console.is_terminal)
