"""Fewer combinations than a full product."""

from collections.abc import Iterable, Mapping

import pytest


def each_once(columns: Mapping[str | tuple[str, ...], Iterable[object]]) -> pytest.MarkDecorator:
    """Parametrize by as many rows as the longest column has values: each value of each occurs.

    A column's values are those of its name, or tuples of those of its names.
    """
    values = [list(column) for column in columns.values()]
    names = [(name,) if isinstance(name, str) else name for name in columns]
    rows = []
    for i in range(max(map(len, values))):
        chosen = [column[i % len(column)] for column in values]
        parts = [
            value if isinstance(name, tuple) and isinstance(value, tuple) else (value,)
            for name, value in zip(columns, chosen, strict=True)
        ]
        rows.append(tuple(one for part in parts for one in part))
    return pytest.mark.parametrize([one for several in names for one in several], rows)
