"""Find the columns of texts and labels in a table by their cells.

A column is the sequence of its cells; columns are in the order of the table.
"""

from collections.abc import Sequence
from itertools import chain
from statistics import fmean
from typing import NamedTuple, TypeAlias

Column: TypeAlias = Sequence[str]

FEWEST = 4
"""Smallest number of rows for recognizing a column by its cells."""
LONGEST_LABEL = 4
"""Largest number of words of a label."""


class Found(NamedTuple):
    """The columns of texts and of labels, and other columns that could be either."""

    text: int
    label: int
    doubtful: tuple[int, ...]


def find_columns(
    columns: Sequence[Column],
    text: int | None = None,
    label: int | None = None,
    second: int | None = None,
) -> Found:
    """Find the columns of texts and labels by their cells; given columns are kept.

    The column of second texts is neither.

    Labels are few, short and repeated. If there is a column of labels, the texts are the column
    with the longest cells; otherwise, texts are the first column and labels the last. Columns of
    numbers aren't texts, and columns of single words that never repeat, such as ids, are neither.
    """
    usable = [i for i in range(len(columns)) if i not in (text, label, second)]
    named = [i for i in usable if not _is_id(columns[i])]
    needed = [text, label].count(None)
    usable = named if len(named) >= needed else usable
    labels = [i for i in usable if _repeats(columns[i])] if label is None else [label]
    texts = [i for i in usable if i not in labels and not _is_number(columns[i])]
    doubtful: list[int] = []
    if text is not None and _is_id(columns[text]):
        doubtful += [i for i in texts if i in named]
    if text is None:
        text = next(chain(texts, usable, [0]))
        if labels and texts:
            text = max(texts, key=lambda i: _length(columns[i]))
            half = _length(columns[text]) / 2
            doubtful += [i for i in texts if i != text and _length(columns[i]) > half]
    if label is None:
        others = [i for i in labels or usable if i != text]
        label = others[-1] if others else len(columns) - 1
        doubtful += [i for i in labels if i not in (text, label)]
    return Found(text, label, tuple(i for i in doubtful if i != label))


def _is_id(cells: Column) -> bool:
    return (
        len(cells) >= FEWEST
        and len(set(cells)) == len(cells)
        and all(len(cell.split()) == 1 for cell in cells)
    )


def _repeats(cells: Column) -> bool:
    """Return whether cells look like labels."""
    return (
        len(cells) >= FEWEST
        and 2 * len(set(cells)) <= len(cells)
        and all(len(cell.split()) <= LONGEST_LABEL for cell in cells)
    )


def _is_number(cells: Column) -> bool:
    return all(cell.replace(".", "", 1).lstrip("+-").isdecimal() for cell in cells)


def _length(cells: Column) -> float:
    return fmean(map(len, cells))
