"""Draws that are the same on every platform and in every version of Python.

Python guarantees reproducible numbers only for Random.random(), so all draws use it.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

_T = TypeVar("_T")


def generator(*purpose: int | str) -> Random:
    """Return a separate generator for each seed and purpose."""
    return Random(" ".join(map(str, purpose)))


def index(draw: Random, n: int) -> int:
    """Draw one of 0..n-1."""
    return int(draw.random() * n)


def between(draw: Random, low: int, high: int) -> int:
    """Draw one of low..high, both included."""
    return low + index(draw, high - low + 1)


def choice(draw: Random, items: Sequence[_T]) -> _T:
    """Return one of the items, all equally likely."""
    return items[index(draw, len(items))]


def shuffled(draw: Random, items: Sequence[_T]) -> list[_T]:
    """Return the items in random order (Fisher–Yates)."""
    result = list(items)
    for last in range(len(result) - 1, 0, -1):
        other = index(draw, last + 1)
        result[last], result[other] = result[other], result[last]
    return result


def sample(draw: Random, items: Sequence[_T], k: int) -> list[_T]:
    """Return k distinct items; all, if there are fewer."""
    rest = list(items)
    chosen: list[_T] = []
    while rest and len(chosen) < k:
        other = index(draw, len(rest))
        rest[other], rest[-1] = rest[-1], rest[other]
        chosen.append(rest.pop())
    return chosen
