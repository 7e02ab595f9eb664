r"""The value of a line of TeX, read from the TeX itself."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from regard.derivations.tex_algebra import Unsupported, entries, number
from regard.derivations.tex_names import Frame
from regard.derivations.tex_parser import TOKEN, parsed
from regard.derivations.tex_scope import Scope

__all__ = ["TOKEN", "Unsupported", "last_side", "tex_value", "tex_values"]

Place: TypeAlias = tuple[tuple[str, int], ...]
"""Indices with their values."""
_RELATION = re.compile(r"(?:\\(?:leq|geq|approx)\b|=)(?![^{]*\})")
_CONDITION = re.compile(r", \\quad (\w) ([<>]) (\w+)")


def last_side(tex: str) -> slice:
    """Return where the last side of a line stands, without conditions behind a comma."""
    end = tex.find(r", \quad")
    body = tex[:end] if end >= 0 else tex
    starts = [found.end() for found in _RELATION.finditer(body)]
    return slice(starts[-1] if starts else 0, len(body))


def tex_value(tex: str, scope: Scope) -> Tensor:
    """Return the value of the last side of a line.

    A line with indices has an axis for each, in the order in which the scope declares them; with
    a condition on some (`i < t`), one axis for all places where it holds.

    Raises:
        Unsupported: the line has notation or a letter that can't be read.
    """
    found = dict(tex_values(tex, scope))
    try:
        values = torch.stack(torch.broadcast_tensors(*found.values()))
    except RuntimeError as error:
        raise Unsupported(f"{tex}: {error}") from None
    axes = dict(next(iter(found)))
    shape = (-1,) if _condition(tex, scope) else tuple(len(scope.indices[name]) for name in axes)
    return values.view((*shape, *values.shape[1:]))


def tex_values(tex: str, scope: Scope) -> Iterator[tuple[Place, Tensor]]:
    """Yield the value of the last side of a line for all values of its indices.

    Raises:
        Unsupported: the line has notation or a letter that can't be read.
    """
    try:
        node, free = parsed(tex[last_side(tex)], scope)
        condition = _condition(tex, scope)
        free |= set(condition.group(1, 3)) if condition else set()
        axes = {name: values for name, values in scope.indices.items() if name in free}
        for values in product(*axes.values()):
            place = dict(zip(axes, values, strict=True))
            if condition is None or _holds(condition, place):
                bound = {name: number(value) for name, value in place.items()}
                yield tuple(place.items()), entries(node(Frame(bound)))
    except (RuntimeError, IndexError, KeyError, TypeError) as error:
        raise Unsupported(f"{tex}: {error}") from None


def _condition(tex: str, scope: Scope) -> re.Match[str] | None:
    """Return the condition of a line on an index and another or a number, if it has one."""
    found = _CONDITION.search(tex)
    return found if found and found[1] in scope.indices else None


def _holds(condition: re.Match[str], place: Mapping[str, int]) -> bool:
    """Return whether a condition holds for the values of indices."""
    left, sign, right = condition.groups()
    bound = int(right) if right.isdecimal() else place[right]
    return place[left] < bound if sign == "<" else place[left] > bound
