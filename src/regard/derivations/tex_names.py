"""Resolve letters of a line with subscripts: inputs, entries, and draws of a random variable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from regard.derivations.tex_algebra import Unsupported, Value, integer, number
from regard.derivations.tex_scope import Drawn, FromZero, Law, Points, Scope, drawn


class Means(dict[Drawn, Tensor]):
    """The means of random letters; `variables` records the requested ones."""

    def __init__(self, laws: Mapping[str, Law]) -> None:
        super().__init__()
        self.laws, self.variables = laws, dict[Drawn, Points]()

    def of(self, name: str, index: tuple[int, ...]) -> Tensor:
        """Return the mean of a letter, or of its part at an index, and record it."""
        key, points = drawn(self.laws, name, index)
        self.variables[key] = points
        return part(name, points.values[0], () if key[1] else index)


@dataclass(frozen=True)
class Frame:
    """Values of indices and arguments, and draws of the variables of an expectation."""

    bound: Mapping[str, Value] = field(default_factory=dict)
    draws: Mapping[Drawn, Tensor] | None = None

    def bind(self, name: str, value: Value) -> "Frame":
        """Return the frame with one more value."""
        return Frame({**self.bound, name: value}, self.draws)


Node: TypeAlias = Callable[[Frame], Value]


def plain(token: str) -> str:
    r"""Return the name of a letter: `mu` of `\mu`, `SM` of `\mathrm{SM}`."""
    return token.removeprefix(r"\mathrm{").removeprefix(r"\mathbf{").strip("\\}").replace("{", " ")


def items(script: Sequence[str]) -> list[list[str]]:
    """Split a subscript into single tokens, or at commas if parts are computed."""
    groups: list[list[str]] = [[]]
    for token in script:
        if token == ",":
            groups.append([])
        elif token != "_":  # a nested subscript counts as one more
            groups[-1].append(token)
    split = []
    for group in groups:
        computed = len({"+", "-"}.intersection(group[1:])) > 0
        split += [group] if computed else [[token] for token in group]
    return split


def literal(name: str, script: Sequence[Sequence[str]], scope: Scope) -> tuple[str, int]:
    """Return the longest known name of a letter with parts of its subscript, and their number."""
    for used in range(len(script), -1, -1):
        whole = name + "".join(map(plain, (token for one in script[:used] for token in one)))
        functions = (one.partition("(")[0] for one in scope.defined)
        if whole in scope.letters or whole in scope.laws or whole in functions:
            return whole, used
    raise Unsupported(f"{name}: isn't an input")


def part(name: str, value: Tensor | FromZero, index: Sequence[int]) -> Tensor:
    """Return an input or its part at an index."""
    first = 1
    if isinstance(value, FromZero):
        first, value = 0, value.entries
    if len(index) > value.ndim:
        raise Unsupported(f"{name}: too many subscripts")
    if any(not 0 <= i - first < size for i, size in zip(index, value.shape, strict=False)):
        raise Unsupported(f"{name}: no entry {tuple(index)}")
    found = value[tuple(i - first for i in index)]
    return found.double() if found.is_floating_point() else found.double() + 1  # rows count from 1


def looked_up(name: str, index: Sequence[Node], scope: Scope) -> Node:
    """Return the node of an input, of a random letter inside an expectation, or of its part."""

    def value(frame: Frame) -> Value:
        at = tuple(integer(node(frame)) for node in index)
        if frame.draws is not None and name in scope.laws:
            if isinstance(frame.draws, Means):
                return frame.draws.of(name, at)
            whole = (name, ()) in frame.draws
            found = frame.draws[name, () if whole else at]
            return part(name, found, at if whole else ())
        letter = scope.letters.get(name)
        if letter is None:
            raise Unsupported(f"{name}: isn't an input")
        if not isinstance(letter, Tensor | FromZero):
            return letter(*at)
        return part(name, letter, at)

    return value


def kronecker(index: Sequence[Node]) -> Node:
    """Return the node of δ: 1 if all indices are equal, else 0."""
    return lambda frame: number(len({integer(node(frame)) for node in index}) == 1)


def softmax(values: Mapping[int, Value], place: int) -> Tensor:
    """Return one entry of the softmax of numbers."""
    numbers = [value for value in values.values() if isinstance(value, Tensor) and not value.ndim]
    if len(numbers) < len(values) or place not in values:
        raise Unsupported("a softmax of vectors, or at another index")
    return torch.stack(numbers).softmax(0)[list(values).index(place)]
