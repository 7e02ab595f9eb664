"""An exercise as data: a problem, a function with a blank, random inputs, typical mistakes."""

import hashlib
import inspect
import textwrap
from ast import get_docstring, parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, product
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from regard.exercises.restrictions import Restrictions, call_restricted
from regard.exercises.values import SEPARATE, decode, difference, encode, wrong_form

Inputs: TypeAlias = Mapping[str, Any]
"""Arguments by name: tensors, numbers, texts and lists of them."""
Program: TypeAlias = Callable[..., Any]

INSTANCES = 5
"""Number of inputs of a student: one shown in the notebook, the others for grading."""
_DRAWS = 1000
"""Number of random inputs to try before an exercise counts as unable to detect its mistakes."""


@dataclass(frozen=True)
class Result:
    """Result of a program, in the form for comparison."""

    value: Any
    exceeds: bool = False
    """Whether the program made a tensor with more entries than the exercise allows."""


class Mistake:
    """A typical mistake: a hint, and programs that make the mistake."""

    def __init__(self, hint: str, *programs: Program) -> None:
        self.hint, self.programs = hint, programs


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A function to write. `reference` has its signature, docstring and right results."""

    course: str
    part: str
    title: str
    problem: str
    """Markdown with TeX."""
    explanation: str
    """For the teacher: the solution in a sentence or two."""
    reference: Program
    draw: Callable[[torch.Generator], Inputs]
    mistakes: Sequence[Mistake]
    points: int = 1
    observe: Program | None = None
    """Function of result and inputs whose value is compared if several results are right."""
    max_entries: Callable[..., int] | None = None
    """Largest allowed number of entries of a tensor, as a function of the inputs."""
    autograd: bool = True
    """Whether a solution may use autograd; `reference` may."""
    tolerance: float | None = None
    """Allowed relative error, if the problem states one. Default: √ε of the precision."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.reference.__name__

    @property
    def restrictions(self) -> Restrictions:
        """The restrictions on a solution."""
        return Restrictions(self.autograd, count_entries=self.max_entries is not None)

    @cached_property
    def stub(self) -> str:
        """Signature and docstring of the function, with a blank to fill."""
        source = textwrap.dedent(inspect.getsource(self.reference))
        lines = source.splitlines()
        function = parse(source).body[0]
        start = next(i for i, line in enumerate(lines) if line.startswith("def "))
        docstring = function.body[0]  # type: ignore[attr-defined]
        assert get_docstring(function), self.name  # type: ignore[arg-type]
        return "\n".join([*lines[start : docstring.end_lineno], "    raise NotImplementedError"])

    def inputs(self, seed: int, index: int) -> Inputs:
        """Return the random inputs of a student: index 0 is shown, the others are for grading.

        Inputs on which a typical mistake gives the right result are drawn again. Two mistakes may
        give equal results on some of a student's inputs, but not on all.
        """
        text = f"{self.name} {seed} {index}"
        key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
        generator = torch.Generator().manual_seed(key)
        for _ in range(_DRAWS):
            drawn = self.draw(generator)
            if self._separates(drawn, index):
                return drawn
        raise RuntimeError(f"{self.name}: no inputs distinguish the mistakes from the solution")

    def _separates(self, inputs: Inputs, index: int) -> bool:
        right = self.expected(inputs)
        wrong = []
        for mistake in self.mistakes:
            wrong.append([self.run(program, inputs) for program in mistake.programs])
            if any(_alike(result, right, SEPARATE) for result in wrong[-1]):
                return False
        pairs = list(combinations(wrong, 2))[index % INSTANCES :: INSTANCES]
        return not any(
            _alike(first, second, SEPARATE)
            for group, other in pairs
            for first, second in product(group, other)
        )

    def expected(self, inputs: Inputs) -> Result:
        """Return the right result."""
        return Result(self._observed(decode(encode(self.reference(**_copied(inputs)))), inputs))

    def run(self, program: Program, inputs: Inputs) -> Result:
        """Return the result of a trusted program."""
        value, entries = self.call(program, inputs)
        return self.observed(decode(value), entries, inputs)

    def call(self, program: Program, inputs: Inputs) -> tuple[Any, int]:
        """Return a program's result as JSON, and the entries of its largest tensor."""
        value, entries = call_restricted(partial(program, **_copied(inputs)), self.restrictions)
        return encode(value), entries

    def observed(self, value: Any, entries: int, inputs: Inputs) -> Result:
        """Return the result to compare, from a returned value and the largest tensor's size."""
        exceeds = self.max_entries is not None and entries > self.max_entries(**inputs)
        return Result(self._observed(value, inputs), exceeds)

    def wrong_form(self, value: Any, inputs: Inputs) -> str:
        """Return the error in a value's type or shape, or ""."""
        return wrong_form(value, decode(encode(self.reference(**_copied(inputs)))))

    def _observed(self, value: Any, inputs: Inputs) -> Any:
        if self.observe is None or self.wrong_form(value, inputs):
            return value
        observed = self.observe(_in_float64(value), **_copied(inputs))
        if _has_float32(value):
            observed = tree_map_only(Tensor, Tensor.float, observed)
        return decode(encode(observed))

    def same(self, first: Result, second: Result) -> bool:
        """Return whether two results are equal within the tolerance."""
        return _alike(first, second, self.tolerance)


def _alike(first: Result, second: Result, tolerance: float | None) -> bool:
    apart = difference(first.value, second.value, tolerance)
    return not apart and first.exceeds == second.exceeds


def exercise(course: str, part: str, **parts: Any) -> Callable[[Program], Exercise]:
    """Return a decorator that turns a function with the right result into an exercise."""
    return lambda reference: Exercise(course=course, part=part, reference=reference, **parts)


def _copied(inputs: Inputs) -> dict[str, Any]:
    """Return inputs that a program may change."""
    return {name: decode(encode(value)) for name, value in inputs.items()}


def _in_float64(value: Any) -> Any:
    """Return one tensor or several in float64, the precision of the inputs."""
    return value.double() if isinstance(value, Tensor) else [_in_float64(item) for item in value]


def _has_float32(value: Any) -> bool:
    return any(x.dtype is torch.float32 for x in tree_leaves(value) if isinstance(x, Tensor))


# Random inputs


def normal(rng: torch.Generator, *shape: int) -> Tensor:
    """Return normal numbers with two decimals, in float64."""
    return torch.randn(*shape, generator=rng, dtype=torch.float64).round(decimals=2)


def integer(rng: torch.Generator, low: int, high: int) -> int:
    """Return an integer from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def orthonormal(rng: torch.Generator, rows: int, d: int) -> Tensor:
    """Return random orthonormal vectors, one a row."""
    q: Tensor = torch.linalg.qr(torch.randn(d, d, generator=rng, dtype=torch.float64))[0]
    return q[:rows]
