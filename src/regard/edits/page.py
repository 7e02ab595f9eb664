"""The page of effects: one offline file with a table and a chart."""

from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from regard.drawing import to_svg
from regard.edits.found import Effects
from regard.files import content_policy, write_file


def save_page(found: Effects, path: Path) -> None:
    """Write the page of effects."""
    write_file(path, page(found).encode())


def page(found: Effects) -> str:
    """Return the page, complete in itself."""
    title = f"Effects: {found.run}"
    return Template(_static("effects.html")).substitute(
        policy=content_policy(""),
        title=escape(title),
        style=_static("effects.css"),
        summary="".join(f"<p>{escape(line)}.</p>" for line in found.lines()),
        figure=to_svg(found.figure(), title),
        table=_table(found.rows()),
    )


def _table(rows: list[dict[str, Any]]) -> str:
    """Return records as the head and the body of a table."""
    head = "".join(f'<th scope="col">{escape(name.replace("_", " "))}</th>' for name in rows[0])
    body = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in rows)
    return f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    if isinstance(value, str):
        return f'<th scope="row">{escape(value)}</th>'
    return f'<td class="number">{value:.3f}</td>'


def _static(name: str) -> str:
    return (files("regard.edits") / "static" / name).read_text(encoding="utf-8")
