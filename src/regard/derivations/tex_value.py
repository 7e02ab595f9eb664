r"""Evaluate a line of TeX."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from regard.derivations.tex_algebra import Unsupported, entries, number
from regard.derivations.tex_names import Frame
from regard.derivations.tex_parser import parsed
from regard.derivations.tex_scope import Scope

Place: TypeAlias = tuple[tuple[str, int], ...]
"""Indices with their values."""
Values: TypeAlias = Mapping[Place, Tensor]
"""Values of a line for all values of its indices."""
_RELATION = re.compile(r"(?:\\(?:leq|geq|approx)\b|=)(?![^{]*\})")
_CONDITION = re.compile(r", \\quad (\w) ([<>]) (\w+)")


def last_side(tex: str) -> slice:
    """Return the slice of the last side of a line, without conditions after a comma."""
    end = tex.find(r", \quad")
    body = tex[:end] if end >= 0 else tex
    starts = [found.end() for found in _RELATION.finditer(body)]
    return slice(starts[-1] if starts else 0, len(body))


def left_side(tex: str) -> str:
    """Return the part of a line before its last sign; empty if there is none."""
    starts = [found.start() for found in _RELATION.finditer(tex[: last_side(tex).stop])]
    return tex[: starts[-1]].strip() if starts else ""


def aligned(first: Values | Tensor, second: Values | Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the values of two lines as tensors of equal shape, stacked over indices.

    The second line may lack indices of the first; it is then repeated. Its 0 may be a zero vector
    or matrix. A tensor has an axis for each index, or one for all. None if indices or shapes
    differ, or if an entry isn't finite.
    """
    left: Tensor | None
    right: Tensor | None
    if isinstance(first, Tensor):
        left, right = (first, second) if isinstance(second, Tensor) else _by_code(first, second)
    elif isinstance(second, Tensor):
        left, right = _stacked(first), _flat(second, first)
    else:
        left, right = _joined(first, second)
    if left is None or right is None or left.shape != right.shape:
        return None
    return (left, right) if torch.stack([left, right]).isfinite().all() else None


def _joined(first: Values, second: Values) -> tuple[Tensor, Tensor | None]:
    """Return two lines at the places of the first; None for the second if places differ."""
    left, kept = _stacked(first), _names(second)
    at = {place: tuple(one for one in place if one[0] in kept) for place in first}
    if set(at.values()) != set(second):
        return left, None
    right = _stacked({place: second[at[place]] for place in first})
    return left, right if right.ndim > 1 or right.any() else torch.zeros_like(left)


def _by_code(given: Tensor, line: Values) -> tuple[Tensor | None, Tensor]:
    """Return a tensor and a line in the same shape; a line without indices is repeated."""
    right = _stacked(line)
    if _names(line) or given.ndim < right.ndim:
        return _flat(given, line), right
    left = given.reshape(-1, *given.shape[given.ndim - right.ndim + 1 :])
    return left, right.expand(len(left), *right.shape[1:])


def _flat(given: Tensor, line: Values) -> Tensor | None:
    """Return a tensor with one axis for all indices of a line; None if shapes differ."""
    stacked, sizes = _stacked(line), [len(set(one)) for one in zip(*line, strict=True)]
    shapes = [(*sizes, *stacked.shape[1:]), *([stacked.shape] if sizes else [])]
    return given.reshape(stacked.shape) if given.shape in shapes else None


def _names(values: Values) -> set[str]:
    """Return the indices of a line."""
    return {name for place in values for name, _ in place}


def _stacked(values: Values) -> Tensor:
    """Stack the values of a line; a number 0 is broadcast to the shape of the others."""
    widest = max(values.values(), key=lambda value: value.ndim, default=number(0))
    try:
        return torch.stack(
            [value if value.any() else value.expand_as(widest) for value in values.values()]
        )
    except RuntimeError as error:
        raise Unsupported(str(error)) from None


def tex_values(tex: str, scope: Scope) -> Iterator[tuple[Place, Tensor]]:
    """Yield the value of the last side of a line for all values of its indices.

    Raises:
        Unsupported: the notation or a letter isn't supported.
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
    """Return the condition of a line on an index, such as i < t or i > 1; None without one."""
    found = _CONDITION.search(tex)
    return found if found and found[1] in scope.indices else None


def _holds(condition: re.Match[str], place: Mapping[str, int]) -> bool:
    """Return whether a condition holds for the values of indices."""
    left, sign, right = condition.groups()
    bound = int(right) if right.isdecimal() else place[right]
    return place[left] < bound if sign == "<" else place[left] > bound
