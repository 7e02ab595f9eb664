"""Files of text pairs: clean and corrupt text, and the right and wrong next word."""

from pathlib import Path
from typing import NamedTuple

from regard.edits.metrics import LogitDifference
from regard.errors import UserError, alternatives
from regard.files import read_text, split_lines

COLUMNS = ("clean", "corrupt", "right", "wrong")


class TextPairs(NamedTuple):
    """Pairs of texts, and their metric: logit of the right word − logit of the wrong one."""

    clean: tuple[str, ...]
    corrupt: tuple[str, ...]
    metric: LogitDifference


def read_pairs(path: Path) -> TextPairs:
    """Read a TSV file with a header: the columns clean, corrupt, right and wrong, in any order.

    Raises:
        UserError: a column is missing, a row has the wrong number of cells, or there is no row.
    """
    header, *lines = (line.split("\t") for line in split_lines(read_text(path)) or [""])
    if header == [""]:
        raise UserError(f"{path}: has no header; begin with the columns {', '.join(COLUMNS)}")
    for name in COLUMNS:
        if name not in header:
            raise UserError(f"{path}: has no column {name}; {alternatives(name, header)}")
    rows = [(number, row) for number, row in enumerate(lines, 2) if row != [""]]
    if not rows:
        raise UserError(f"{path}: has no row under its header")
    for number, row in rows:
        if len(row) != len(header):
            raise UserError(f"{path}:{number}: has {len(row)} cells, and the header {len(header)}")
        if empty := [n for n in COLUMNS if not row[header.index(n)]]:
            raise UserError(f"{path}:{number}: {empty[0]} is empty")
    clean, corrupt, right, wrong = (
        tuple(row[header.index(name)] for _, row in rows) for name in COLUMNS
    )
    return TextPairs(clean, corrupt, LogitDifference(right, wrong))
