"""Tables of users: CSV, TSV, JSONL and Parquet, with a column of texts and one of labels."""

import csv
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from regard.config import Config
from regard.errors import UserError, suggestion
from regard.files import decode_json
from regard.tasks.columns import find_columns
from regard.tasks.examples import Example
from regard.tasks.rows import Rows
from regard.text.files import (
    RECORDS,
    TextFile,
    content_suffix,
    decoded,
    inspect_file,
    open_text,
    parquet_rows,
    path_exists,
)

SEPARATORS = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar"}
_USUAL = frozenset(
    {
        *("text", "review", "sentence", "comment", "content", "body", "title", "tweet", "summary"),
        *("label", "labels", "class", "category", "sentiment", "stars", "rating", "score", "topic"),
        *("target", "answer", "tags", "second", "id"),
    }
)
"""Usual names of columns of texts and labels."""
_SAMPLED = 100
"""Number of rows for detecting separator and header."""
_READ = 1000
"""Number of rows for finding the columns of texts and labels."""


class TableConfig(Config, frozen=True):
    """Format of a table of texts and labels, or the text field of records."""

    text: str = ""
    """Column with the text, by name or number. Default: text, or else detected."""
    second: str = ""
    """Column with a second text, by name or number. Default: second, if there is one."""
    label: str = ""
    """Column with the label or answer, by name or number. Default: label, or else detected."""
    header: bool | None = None
    """Whether the first row names the columns. Default: detected."""
    skip_bad: bool = False
    """Whether to leave out rows, or text files, that can't be read; otherwise they are an error."""
    test: Annotated[float, Meta(ge=0, lt=1)] = 0.1
    """Share of the rows (of each label, if any) to hold out for scoring, drawn by the seed."""


@dataclass(frozen=True)
class Row:
    """The cells of a row, and its place."""

    cells: Sequence[str | None]
    where: str
    bad: str = ""
    """What is wrong with its quotation marks."""


@dataclass(frozen=True)
class Table:
    """Names of columns, and rows."""

    path: Path
    columns: Sequence[str]
    """Names, or numbers from 1 without a header."""
    rows: Sequence[Row]
    bad: Sequence[str]
    """An error for each row that can't be read."""
    format: str
    """Description of the detected format."""


def is_table(path: Path, config: TableConfig, *, trained: bool = False) -> bool:
    """Return whether to read a file as a table, not line by line.

    CSV and Parquet are tables; other files are if columns are named or there is a header. The names
    of a `trained` run's columns may be unknown to a later file: it needs a header with one of them.
    """
    names = [name for name in (config.text, config.second, config.label) if name]
    chosen = bool(names) and (not trained or any(map(str.isdecimal, names)))
    if chosen or config.header is not None or content_suffix(path) in {".csv", ".parquet"}:
        return True
    in_records = content_suffix(path) in RECORDS | {".json"}
    if not path_exists(path) or (in_records and not names):
        return False
    file = inspect_file(path)
    if in_records:
        records = (one for one in _json_records(file) if not isinstance(one, str))
        return any(name in fields for fields, _ in islice(records, _SAMPLED) for name in names)
    separator = _detect_separator(file) if names else "\t"
    first = [row.cells for row in islice(_parse(file, separator, quoted=False), _SAMPLED)]
    return bool(first) and _has_header(first, names)


def read_table_rows(path: Path, config: TableConfig, *, label_required: bool = True) -> Rows:
    """Read texts and their labels from columns of a table.

    Default columns are those named text and label. If they are missing and labels are required,
    columns are found by their cells. If labels aren't required, the text is then the first column
    and the label the last; a named column of labels that is missing gives no labels.

    Raises:
        UserError: the file has no rows, or a column is missing.
    """
    names = [name for name in (config.text, config.second, config.label) if name]
    table = read_table(path, names, header=config.header)
    columns = _choose_columns(table, config, label_required=label_required)
    examples, bad = list[Example](), list(table.bad)
    for row in table.rows:
        cells = {name: (row.cells[i] or "").strip() for name, i in columns.items()}
        empty = [name for name, cell in cells.items() if not cell]
        if empty:
            bad.append(f"{row.where}: the {empty[0]} is empty")
        else:
            second, answer = cells.get("second text"), cells.get("label")
            examples.append(
                Example(text=cells["text"], second=second, answer=answer, where=row.where)
            )
    shown = [f"{name}: column {table.columns[i]}" for name, i in columns.items()]
    usual = _choose_columns(table, TableConfig(), label_required=False)
    named = not table.format.endswith("no header")
    found = {
        name: table.columns[i]
        for name, i in columns.items()
        if i != usual.get(name) or (named and table.columns[i].lower() != name)
    }
    return Rows(examples, bad, "; ".join([table.format, *shown]), found)


def _choose_columns(table: Table, config: TableConfig, *, label_required: bool) -> dict[str, int]:
    """Return the indices of the columns of text, second text and label, if present.

    Raises:
        UserError: a chosen column is missing, or is chosen twice.
    """
    text, label = _column(table, config.text, "text"), None
    second = _column(table, config.second, "second")
    if label_required or not config.label or config.label in table.columns:
        label = _column(table, config.label, "label")
    last = len(table.columns) - 1
    if label_required and (config.text or text is None or label is None):
        text, label = _find_columns(table, text, label, second)
    columns = {"text": min(int(second == 0), last) if text is None else text}
    if second is not None:
        columns["second text"] = second
    if label is None and (label_required or not config.label):
        label = last
    if label is not None and label not in columns.values():
        columns["label"] = label
    elif config.label and label is not None:
        raise UserError(f"--label {config.label}: is the column of the texts; name another")
    return columns


def _find_columns(
    table: Table, text: int | None, label: int | None, second: int | None
) -> tuple[int, int]:
    """Find the columns of texts and labels by their cells; warn if other columns fit, too."""
    rows = table.rows[:_READ]
    cells = [[(row.cells[i] or "").strip() for row in rows] for i in range(len(table.columns))]
    found = find_columns(cells, text, label, second)
    if found.doubtful:
        names = table.columns
        warnings.warn(
            f"{table.path}: takes column {names[found.text]} for the text and {names[found.label]} "
            f"for the label; could be {', '.join(names[i] for i in found.doubtful)} too: choose by "
            "--text and --label",
            stacklevel=2,
        )
    return found.text, found.label


def read_table(path: Path, names: Sequence[str] = (), *, header: bool | None = None) -> Table:
    """Read a table. `names` are required columns, which identify a header.

    Raises:
        UserError: the file can't be read or has no rows.
    """
    if not path_exists(path):
        raise UserError(f"{path}: no such file")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; name one table in it")
    file = inspect_file(path)
    if content_suffix(path) in RECORDS | {".json"}:
        return _read_records(file)
    separator = "\t" if content_suffix(path) == ".tsv" else _detect_separator(file)
    quoting = _detect_quoting(file, separator)
    parsed = list(_parse(file, separator, quoted=quoting))
    if not parsed:
        raise UserError(f"{path}: holds no rows")
    broken = [f"{row.where}: {row.bad}" for row in parsed if row.bad]
    parsed = [row for row in parsed if not row.bad]
    if broken and len(parsed) < 2:
        raise UserError(broken[0])
    found = _has_header([row.cells for row in parsed[:_SAMPLED]], names)
    has_header = found if header is None else header
    first, rows = parsed[0].cells, parsed[1:] if has_header else parsed
    if not rows:
        raise UserError(
            f"{path}: has a header but no rows; add rows, or pass --no-header if the first line "
            "is a row"
        )
    widths = Counter(len(row.cells) for row in rows)
    width = len(first) if has_header else widths.most_common(1)[0][0]
    columns = [str(cell).strip() for cell in first] if has_header else None
    bad = [
        f"{row.where}: expected {width} columns, found {len(row.cells)}"
        for row in rows
        if len(row.cells) != width
    ]
    kinds = [
        f"{SEPARATORS[separator]}-separated" if width > 1 else "one column",
        "quoted" if quoting else "",
        {"utf-8-sig": "UTF-8", "cp1252": "Windows-1252"}.get(file.encoding, file.encoding),
        f"{'a' if has_header else 'no'} header",
    ]
    return Table(
        path=path,
        columns=columns or [str(i) for i in range(1, width + 1)],
        rows=[row for row in rows if len(row.cells) == width],
        bad=broken + bad,
        format=", ".join(filter(None, kinds)),
    )


def _parse(file: TextFile, separator: str, *, quoted: bool) -> Iterator[Row]:
    """Yield the rows of a file that aren't blank, each with its last line number.

    A row of several lines in which a cell isn't closed by a quotation mark is bad: it may hold all
    rows that follow.
    """
    parse = partial(
        csv.reader,
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
    )
    limit = csv.field_size_limit(2**31 - 1)  # a global setting, 128 KiB by default
    try:
        with open_text(file) as opened:
            read: list[str] = []  # the lines of the row
            reader = parse(_noted((line.replace("\0", "") for line in opened), read))
            for cells in reader:
                where, bad = f"{file.path}:{reader.line_num}", ""
                if len(read) > 1 and not _closes_cells(parse, read, separator):
                    where = f"{file.path}:{reader.line_num - len(read) + 1}"
                    bad = (
                        "a cell begins with a quotation mark and isn't closed by one, but goes on "
                        f"for {len(read)} lines; close it, or double the mark if it is text"
                    )
                read.clear()
                if any(cell.strip() for cell in cells):
                    yield Row(cells, where, bad)
    finally:
        csv.field_size_limit(limit)


def _noted(lines: Iterable[str], read: list[str]) -> Iterator[str]:
    """Yield lines, and append each to those that are read."""
    for line in lines:
        read.append(line)
        yield line


def _closes_cells(
    parse: Callable[..., Iterator[list[str]]], lines: Sequence[str], separator: str
) -> bool:
    """Return whether cells in quotation marks are closed at their ends, perhaps before spaces."""
    spaces = re.compile(rf"(?<=\") +(?={re.escape(separator)}|$)", re.MULTILINE)
    try:
        list(parse((spaces.sub("", line) for line in lines), strict=True))
    except csv.Error:
        return False
    return True


def _detect_separator(file: TextFile) -> str:
    """Return the separator that gives most rows the same number of columns, at least two."""
    return max(SEPARATORS, key=lambda separator: _agreement(file, separator, quoted=True))


def _agreement(file: TextFile, separator: str, *, quoted: bool) -> tuple[float, int]:
    """Return the share of rows with the commonest number of columns (0 if it is 1), and it."""
    rows = islice(_parse(file, separator, quoted=quoted), _SAMPLED)
    widths = Counter(len(row.cells) for row in rows)
    if not widths:  # no cell has a text
        return 1.0, 0
    width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
    return (count / widths.total() if width > 1 else 0.0), width


def _detect_quoting(file: TextFile, separator: str) -> bool:
    """Return whether quotation marks delimit cells.

    In TSV, they may be part of the text. They delimit cells if every cell that begins with one ends
    with one, or if more rows then have the same number of columns. In CSV, they always do.
    """
    if separator != "\t":
        return True
    rows = islice(_parse(file, separator, quoted=False), _SAMPLED)
    cells = [(cell or "").strip() for row in rows for cell in row.cells]
    opened = [cell for cell in cells if cell.startswith('"')]
    if all(len(cell) > 1 and cell.endswith('"') for cell in opened):
        return bool(opened)
    with_quotes, without = (_agreement(file, separator, quoted=quoted) for quoted in (True, False))
    return with_quotes[0] > without[0]


def _has_header(rows: Sequence[Sequence[str | None]], names: Sequence[str]) -> bool:
    """Return whether the first row is a header: required, usual or otherwise unique names."""
    first, others = [(cell or "").strip() for cell in rows[0]], rows[1:]
    if any(name in first for name in names):
        return True
    short = all(0 < len(cell) <= 40 and len(cell.split()) <= 3 for cell in first)
    if not short or len(set(first)) < len(first) or any(map(_is_number, first)):
        return False
    if len(first) == 1:
        return first[0].lower() == "text"
    if any(cell.lower() in _USUAL for cell in first):
        return True
    labels = Counter(row[-1] for row in others if len(row) == len(first))
    repeated = len(labels) > 1 and min(labels.values()) > 1
    return repeated and first[-1] not in labels


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _column(table: Table, chosen: str, usual: str) -> int | None:
    """Return the index of the chosen column, or else of the usual one, if there is one.

    Raises:
        UserError: the chosen column is missing.
    """
    columns = list(table.columns)
    if not chosen:
        lower = [column.lower() for column in columns]
        return lower.index(usual) if usual in lower else None
    if chosen in columns:
        return columns.index(chosen)
    if chosen.isdecimal() and 1 <= int(chosen) <= len(columns):
        return int(chosen) - 1
    named = f"its columns: {', '.join(columns)}{suggestion(chosen, columns)}"
    if table.format.endswith("no header"):
        last = f" to {columns[-1]}" if len(columns) > 1 else ""
        named = f"it has no header, so name a column by number (1{last}), or add a header"
    raise UserError(
        f"{table.path}: has no column {chosen!r}; {named}; it was read as {table.format}"
    )


# Records


def _read_records(file: TextFile) -> Table:
    """Read records of JSONL or Parquet as rows; missing fields are None."""
    is_parquet = content_suffix(file.path) == ".parquet"
    records = list(_parquet_records(file) if is_parquet else _json_records(file))
    bad = [record for record in records if isinstance(record, str)]
    good = [record for record in records if not isinstance(record, str)]
    columns = list(dict.fromkeys(name for fields, _ in good for name in fields))
    rows = [Row([_cell(fields.get(name)) for name in columns], where) for fields, where in good]
    if not columns:
        raise UserError(bad[0] if bad else f"{file.path}: holds no fields; add rows with some")
    kind = "Parquet" if is_parquet else "JSONL"
    return Table(Path(file.path), columns, rows, bad, kind)


_Record = tuple[dict[str, object], str] | str
"""Fields and place, or an error."""


def _json_records(file: TextFile) -> Iterator[_Record]:
    with open_text(file) as opened:
        for number, line in enumerate(opened, start=1):
            where = f"{file.path}:{number}"
            if line.strip():
                try:
                    yield decode_json(line, dict[str, object]), where
                except ValueError as error:
                    yield f"{where}: {error}"


def _parquet_records(file: TextFile) -> Iterator[_Record]:
    for number, row in enumerate(parquet_rows(Path(file.path)), start=1):
        yield row, f"{file.path}:{number}"


def _cell(value: object) -> str | None:
    value = decoded(value)
    return value if isinstance(value, str) or value is None else str(value)
