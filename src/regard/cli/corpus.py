"""regard index and regard find"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regard.cli import options
from regard.errors import UserError

if TYPE_CHECKING:
    from regard.corpus.index import CorpusIndex
    from regard.corpus.search import Match


@click.command()
@click.argument("corpus", nargs=-1, required=True, type=options.PATH)
@click.option("--out", type=options.OutputFile(), required=True, help="File to write.")
@options.DOCUMENTS
def index(corpus: tuple[Path, ...], out: Path, documents: str, field: str) -> None:
    """Index the files and folders CORPUS for `regard find`.

    They are read as by `regard train text`: text, Markdown, JSONL and Parquet. The index holds a
    copy of the text.
    """
    from regard.corpus.index import index_files, require_replaceable, save_index

    require_replaceable(out)
    made = index_files(corpus, documents=documents, field=field)
    fingerprint = save_index(out, made)
    click.echo(f"documents: {len(made.documents):,} (files: {len(made.paths):,})")
    click.echo(f"text: {len(made.text) - len(made.documents):,} bytes")
    click.echo(f"fingerprint: {fingerprint}")
    click.echo(f"Index: {out} ({out.stat().st_size:,} bytes)")


@click.command()
@click.argument("index", type=options.PATH)
@click.argument("text")
@click.option("--count", "only_count", is_flag=True, help="Print only the number of occurrences.")
@click.option("--longest", is_flag=True, help="Find the longest spans of TEXT that occur.")
@click.option("--max-count", type=options.COUNT, help="Number of places to show. Default: all.")
@options.JSON
def find(
    index: Path,
    text: str,
    only_count: bool,
    longest: bool,
    max_count: int | None,
    json_file: Path | None,
) -> None:
    """Find TEXT in the corpus of an INDEX: each place as file:line, with the line.

    TEXT is compared byte by byte, so case matters. Matches don't cross document boundaries.
    """
    from regard.corpus.index import open_index

    if not text:
        raise UserError("TEXT is empty; give at least one character")
    if only_count and longest:
        raise UserError(
            "--count and --longest exclude each other (--longest prints counts); leave one out"
        )
    opened = open_index(index)
    if longest:
        found = _find_spans(opened, text, max_count)
    else:
        found = _find_places(opened, text, 0 if only_count else max_count)
    options.write_json(json_file, found)


def _find_places(index: "CorpusIndex", text: str, most: int | None) -> dict[str, Any]:
    """Print and return at most `most` occurrences of a text; only their number if `most` is 0."""
    import msgspec

    from regard.corpus.search import occurrences, show

    query = text.encode("utf-8", "surrogateescape")
    places = occurrences(index, query)
    matches = [show(index, place, len(query)) for place in places[:most].tolist()]
    for match in matches:
        click.echo(_line(match))
    if most == 0:
        click.echo(len(places))
    elif not matches:
        click.echo("0 occurrences; --longest finds the parts of TEXT that occur")
    else:
        plural = "" if len(places) == 1 else "s"
        click.echo(f"{len(places):,} occurrence{plural}")
    found: dict[str, Any] = {"query": query.decode("utf-8", "replace"), "count": len(places)}
    return found if most == 0 else found | {"occurrences": msgspec.to_builtins(matches)}


def _line(match: "Match") -> str:
    marked = click.style(_printable(match.match), fg="red", bold=True)
    place = click.style(f"{match.path}:{match.line}", fg="cyan")
    return f"{place}: {_printable(match.before).lstrip()}{marked}{_printable(match.after).rstrip()}"


def _printable(text: str) -> str:
    """Return a text without control characters, which would affect a terminal."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def _find_spans(index: "CorpusIndex", text: str, most: int | None) -> dict[str, Any]:
    """Print and return the longest spans of a text that occur in the corpus, at most `most`."""
    import msgspec

    from regard.corpus.search import longest_spans

    spans = longest_spans(index, text)[:most]
    for span in spans:
        marked = click.style(_printable(span.text), fg="red", bold=True)
        click.echo(f"{span.count:>9,} × {marked}")
    if not spans:
        click.echo("no word of TEXT occurs")
    query = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return {"query": query, "spans": msgspec.to_builtins(spans)}
