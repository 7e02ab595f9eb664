"""The table of a comparison as CSV, JSON, Markdown and LaTeX."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from math import isinf

from regard.comparison.folder import Sweep
from regard.comparison.grid import short_name
from regard.comparison.statistics import SEEDS
from regard.comparison.table import MEASURED, Comparison, Record
from regard.files import to_csv, write_file

SHORT = {
    "parameters": "parameters",
    "operations": "FLOPs/row",
    "state_bytes": "state (bytes)",
    "seconds": "seconds",
    "tokens_per_second": "tokens/s",
    "peak_memory_mb": "memory (MB)",
}
"""Names of costs in printed tables."""
GAP = 2
"""Spaces between the columns of a table in a terminal."""


def save_tables(comparison: Comparison) -> None:
    """Write all tables into the comparison's folder."""
    records, failures = comparison.table(), comparison.failures()
    document = {"rows": records, "failures": failures, "measured": list(MEASURED)}
    texts = {
        "table.csv": to_csv(records),
        "table.json": json.dumps(document, indent=1, ensure_ascii=False) + "\n",
        "table.md": to_markdown(comparison),
        "table.tex": to_latex(comparison),
    }
    for name, text in texts.items():
        write_file(comparison.out / name, text.encode())


def readable(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the columns and cells of a printed table: scores with intervals, costs rounded.

    The best row comes first; empty columns are left out.
    """
    sweep, found = comparison.sweep, [record for _, record in comparison.by_score()]

    def values(paths: Sequence[str]) -> list[tuple[str, list[str]]]:
        return [(short_name(path), [one[path] or "–" for one in found]) for path in paths]

    columns = [
        ("rank", [str(one["rank"] or "–") for one in found]),
        *values([*sweep.over]),
        (comparison.score or "score", [interval(one, "test", "") for one in found]),
        ("seeds", [f"{one['seeds']}" for one in found]),
        ("difference", [interval(one, "difference", "+") for one in found]),
        ("verdict", [_remarks(one) or "–" for one in found]),
        *values([*sweep.tune, *sweep.sizes]),
        ("window", [_windows(one, list(sweep.tune)) for one in found]),
        *((short, [quantity(one[name]) for one in found]) for name, short in SHORT.items()),
    ]
    kept = [(name, cells) for name, cells in columns if {*cells} != {"–"}]
    rows = zip(*(cells for _, cells in kept), strict=True)
    return [name for name, _ in kept], [list(row) for row in rows]


def columns_in_parts(
    columns: Sequence[str], rows: Sequence[Sequence[str]], sweep: Sweep, width: int
) -> list[list[int]]:
    """Split a table into parts that fit a width; each repeats the columns of compared axes."""
    axes = set(map(short_name, sweep.over))
    names = [i for i, name in enumerate(columns) if name in axes]
    widths = [max(map(len, column)) + GAP for column in zip(columns, *rows, strict=True)]
    free, parts = width + GAP - sum(widths[i] for i in names), list[list[int]]()
    for i in (i for i in range(len(columns)) if i not in names):
        if not parts or sum(widths[j] for j in parts[-1]) + widths[i] > free:
            parts.append([])
        parts[-1].append(i)
    return [sorted([*names, *part]) for part in parts]


def _windows(record: Record, tuned: Sequence[str]) -> str:
    found = [record[f"window of {path}"] or "–" for path in tuned]
    return "; ".join(found) if {*found} - {"–"} else "–"


def _remarks(record: Record) -> str:
    remarks = [record["verdict"]]
    if record["at the edge"]:
        remarks.append("best value at the edge of the grid")
    if record["better with fewer seeds"]:
        remarks.append("a value with fewer seeds is better on them")
    if record["diverged or failed"]:
        remarks.append(f"{record['diverged or failed']} diverged or failed")
    if record["waiting"]:
        remarks.append(f"{record['waiting']} waiting")
    return "; ".join(filter(None, remarks))


def interval(record: Record, name: str, sign: str) -> str:
    """Return a mean, with its interval if there are enough seeds: 0.912 [0.873, 0.951]."""
    value, low, high = (record[key] for key in (name, f"{name} low", f"{name} high"))
    if value is None:
        return "–"
    text = f"{value:{sign}z.3f}"  # z: no minus zero
    seeds = record["common seeds" if name == "difference" else "seeds"]
    if low is None or seeds < SEEDS:
        return text
    return f"{text} [{low:{sign}z.3f}, {high:{sign}z.3f}]"


def quantity(value: float | None) -> str:
    """Return a number with three significant digits, or as a whole number from 100 on."""
    if value is None or isinf(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def to_markdown(comparison: Comparison) -> str:
    """Return the table as Markdown, then the refused, diverged and failed combinations."""
    lines = [*markdown_table(*readable(comparison)), ""]
    lines += [f"- {line}" for line in [*seed_notes(comparison), *failure_lines(comparison)]]
    return "\n".join(lines).rstrip() + "\n"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return list(map(_markdown_row, (columns, ["---"] * len(columns), *rows)))


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def seed_notes(comparison: Comparison) -> list[str]:
    """Return a note on missing intervals, if any are missing."""
    few = any(0 < one["seeds"] < SEEDS for one in comparison.table())
    return [f"intervals need {SEEDS} seeds; those of fewer are left out"] if few else []


def failure_lines(comparison: Comparison) -> list[str]:
    """Return a line for each refused combination, and for each group of diverged or failed cells.

    Cells of a group differ only in the seed, and their reasons only in numbers. The line has the
    reason of the first cell.
    """
    axes, alike = comparison.sweep.axes, defaultdict[tuple[str, ...], list[Record]](list)
    for one in comparison.failures():
        where = ", ".join(f"{path}={one[path]}" for path in axes if one.get(path))
        alike[where, one["state"], re.sub(r"\d+", "", one["reason"])].append(one)
    lines = []
    for (where, state, _), cells in sorted(alike.items()):
        cells = sorted(cells, key=lambda one: one["seed"] or 0)
        where += _listed(", seed", [one["seed"] for one in cells])
        at = _listed(" at step", [one["step"] for one in cells])
        lines.append(f"{where}: {state}{at}: {cells[0]['reason']}")
    return lines


def _listed(noun: str, numbers: Sequence[int | None]) -> str:
    """Return a noun with its numbers, such as "seeds 0, 1"; empty without numbers."""
    shown = [str(number) for number in numbers if number is not None]
    return f"{noun}{'s' if len(shown) > 1 else ''} {', '.join(shown)}" if shown else ""


def to_latex(comparison: Comparison) -> str:
    """Return the table as a LaTeX tabular with rules of booktabs."""
    columns, rows = readable(comparison)
    lines = [f"\\begin{{tabular}}{{{'l' * len(columns)}}}", "\\toprule"]
    lines += [_latex_row(columns), "\\midrule", *map(_latex_row, rows)]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + " \\\\"


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def _latex(text: str) -> str:
    return re.sub(r"[\\~^–&%$#_{}]", lambda found: _SPECIAL[found[0]], text)
