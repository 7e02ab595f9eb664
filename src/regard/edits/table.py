"""Tables of records: as text, and as HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Records with the same keys: text, numbers, or yes and no."""


def text_table(rows: Rows) -> str:
    """Return records as aligned columns under their names."""
    columns = list(rows[0])
    cells = [columns, *([_shown(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def html_table(rows: Rows) -> str:
    """Return records as the head and the body of a table."""
    head = "".join(_heading(*column) for column in rows[0].items())
    body = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in rows)
    return f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"


def _heading(name: str, value: Any) -> str:
    """Return the head of a column, aligned as its values are."""
    number = "" if isinstance(value, bool | str) else ' class="number"'
    return f'<th scope="col"{number}>{escape(name.replace("_", " "))}</th>'


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return f"<td>{_shown(value)}</td>"
    if isinstance(value, str):
        return f'<th scope="row">{escape(value)}</th>'
    return f'<td class="number">{_shown(value)}</td>'


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:z.3f}"  # z: no minus zero
