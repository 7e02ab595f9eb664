"""regard courses"""

from typing import TYPE_CHECKING

import click

from regard.cli import options

if TYPE_CHECKING:
    from regard.courses import Part


@click.command()
@click.option("--course", metavar="NAME", help="Course to list; all by default.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the answers.")
def courses(course: str | None, as_json: bool) -> None:
    """List the questions of five courses, and where each is answered.

    A question is answered in the book (regard book), by studies (regard study run), pages of
    the documentation and commands.
    """
    from regard.courses import all_parts, require_course

    if course is not None:
        require_course(course)
    parts = [part for part in all_parts() if course in (None, part.course)]
    if as_json:
        click.echo(options.to_json([_described(part) for part in parts]))
    else:
        _print(parts)


def _described(part: "Part") -> dict[str, object]:
    import msgspec

    from regard.studies.quotations import with_numbers
    from regard.studies.registry import find_study

    findings = {name: find_study(name).stored_result() for name in part.studies}
    part = with_numbers(part, findings)
    plain: dict[str, object] = msgspec.to_builtins(part)
    number = plain.pop("number")
    return {"course": plain.pop("course"), "part": number, **plain, "studies": part.studies}


def _print(parts: "list[Part]") -> None:
    """Print a table for each course."""
    from rich.table import Table
    from rich.text import Text

    from regard.book.formula_text import with_formulas
    from regard.courses import COURSES

    for course in dict.fromkeys(part.course for part in parts):
        title = f"\n{course}: {COURSES[course]}"
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        table.add_column("part", no_wrap=True)
        table.add_column("problem", ratio=3)
        table.add_column("answered by", ratio=2, overflow="fold")
        for part in parts:
            if part.course == course:
                row = (part.number, with_formulas(part.question), ", ".join(_answers(part)))
                table.add_row(*map(Text, row))
        options.print_wide(table)


def _answers(part: "Part") -> list[str]:
    """Return the names of the evidence for a part, without repetition."""
    found = [f"study {name}" for name in part.studies]
    found += [f"derivation {part.derivation}"] if part.derivation else []
    found += part.pages
    found += [part.command] if part.command else []
    return found
