"""The columns of a table that hold texts and labels: named, called so, or found by their cells.

Columns are given by their cells, in the order of the table.
"""

from collections.abc import Sequence
from itertools import chain
from statistics import fmean
from typing import NamedTuple, TypeAlias

Column: TypeAlias = Sequence[str]

FEWEST = 4
"""Fewest rows whose cells tell what a column holds."""
LONGEST_LABEL = 4
"""Most words of a label."""


class Found(NamedTuple):
    """The column of texts and that of labels, and those that could be either as well."""

    text: int
    label: int
    doubtful: tuple[int, ...]


def find_columns(
    columns: Sequence[Column], text: int | None = None, label: int | None = None
) -> Found:
    """Find the columns of texts and labels by their cells, where they aren't known.

    Labels are few and short, and repeat. Beside them, the longest cells are the texts; without
    them, texts come first and what is to be learned last. Numbers are no text, and single words
    that never repeat, such as ids, are neither; a known column of texts that has them is doubtful.
    """
    usable = [i for i in range(len(columns)) if i not in (text, label)]
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
