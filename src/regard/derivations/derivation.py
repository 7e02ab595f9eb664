"""Derivations: every line is evaluated on random inputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.derivations.tex_algebra import Unsupported
from regard.derivations.tex_scope import Law, Letter, Scope
from regard.derivations.tex_value import Values, aligned, left_side, tex_values

TOLERANCE = 1e-9
"""Largest relative error of a correct line."""

Relation: TypeAlias = Literal["", "=", "≤", "≥", "≈"]
_SIGNS: dict[str, Relation] = {"=": "=", r"\leq": "≤", r"\geq": "≥", r"\approx": "≈"}


class Inputs(dict[str, Tensor]):
    """Tensors by name: `x.q` is `x["q"]`.

    >>> x = Inputs(q=torch.ones(3), k=torch.arange(3.0))
    >>> x.q @ x.k
    tensor(3.)
    """

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


Value: TypeAlias = Callable[[Inputs], Float64[Tensor, "..."]]


@dataclass(frozen=True)
class WorstCase:
    r"""Inputs for which a bound is nearly tight.

    >>> worst = WorstCase("a large $t$", lambda: Inputs(t=torch.tensor(8.0)), share=0.9)
    >>> print(Step(r"\leq e^{-t}", "Drop a term.", worst=worst).text)
    Drop a term. At least 90 % of the bound is reached for a large $t$.
    """

    where: str
    """Description of the inputs, with inline TeX between dollar signs."""
    inputs: Callable[[], Inputs]
    """Returns these inputs; missing ones are drawn."""
    share: float = 0.97
    """Smallest share of the bound that is reached."""


@dataclass(frozen=True)
class Draw:
    """Inputs and their names in lines; values of lines are cached."""

    inputs: Inputs
    scope: Scope
    _read: dict[str, Values] = field(default_factory=dict, init=False, repr=False)

    def read(self, tex: str) -> Values:
        """Return the values of TeX for all values of its indices.

        Raises:
            Unsupported: the notation or a letter isn't supported.
        """
        if tex not in self._read:
            self._read[tex] = dict(tex_values(tex, self.scope))
        return self._read[tex]


@dataclass(frozen=True)
class Step:
    r"""One line of a derivation.

    The sign at its start (`=`, `\leq`, `\geq`, `\approx`) relates the line to the previous one; the
    check verifies this relation. A line without a sign begins a new chain.

    >>> lines = Step(r"(a + b)^2", "Given."), Step("= a^2 + 2ab + b^2", "Expand.")
    >>> numbers = Inputs(a=torch.tensor(2.0), b=torch.tensor(3.0))
    >>> square = Derivation("square", "A square", "$a$ and $b$.", lambda _: numbers, lines)
    >>> square.check(seed=0)
    (0.0, 0.0)
    """

    tex: str
    """The line in TeX, without dollar signs. Its value is that of its last side."""
    reason: str
    """Justification of the line, in prose with inline TeX between dollar signs."""
    value: Value | None = None
    """Value of a line whose TeX isn't supported."""
    library: Value | None = None
    """Independent value by code, which must be equal, to catch errors common to all lines."""
    remainder: Value | None = None
    """Bound on the difference, entry by entry, for a line that begins with `≈`."""
    worst: WorstCase | None = None
    """Case where the bound is nearly tight, for a line that begins with `≤`, `≥` or `≈`."""

    def __post_init__(self) -> None:
        if (self.relation in ("≤", "≥", "≈")) != (self.worst is not None):
            raise ValueError(f"{self.tex}: a worst case belongs to ≤, ≥ and ≈, which need one")
        if (self.relation == "≈") != (self.remainder is not None):
            raise ValueError(f"{self.tex}: a remainder belongs to ≈, and ≈ needs one")

    @property
    def relation(self) -> Relation:
        """Relation to the previous line; empty if the line begins a chain."""
        return _SIGNS.get(self.tex.split(maxsplit=1)[0], "")

    @property
    def text(self) -> str:
        """The reason and, for bounds, the worst case."""
        if self.worst is None:
            return self.reason
        share = f"{self.worst.share:.0%}".replace("%", " %")
        return f"{self.reason} At least {share} of the bound is reached for {self.worst.where}."

    def values(self, draw: Draw) -> Values | Tensor:
        """Return the values of the line for all values of its indices; a tensor if by code."""
        return draw.read(self.tex) if self.value is None else self.value(draw.inputs).double()

    def own_error(self, draw: Draw) -> float:
        """Return the relative difference of the line from its left side and from the library.

        An unsupported left side is taken to be a new name, and ignored.
        """
        values, errors = self.values(draw), [0.0]
        if self.library is not None:
            errors.append(difference(values, self.library(draw.inputs).double()))
        if (named := self._left_side(draw)) is not None:
            errors.append(difference(named, values))
        return max(errors)

    def _left_side(self, draw: Draw) -> Values | None:
        left = left_side(self.tex)
        with suppress(Unsupported):
            return draw.read(left) if left else None
        return None

    def error(self, before: "Step", draw: Draw) -> float:
        """Return the violation of the relation to the previous line, over the largest entry.

        The error is infinite if the lines have different shapes or indices, or if a value isn't
        finite.
        """
        pair = aligned(before.values(draw), self.values(draw))
        return float("inf") if pair is None else _relative(self._violation(*pair, draw), *pair)

    def reached(self, before: "Step", draw: Draw) -> float:
        """Return the largest ratio of value and bound over all entries."""
        pair = aligned(before.values(draw), self.values(draw))
        if pair is None:
            raise ValueError(f"{self.tex}: not of the shape of the line before")
        left, right = pair
        if self.remainder is not None:
            left, right = (left - right).abs(), self.remainder(draw.inputs).view_as(left)
        small, large = (right, left) if self.relation == "≥" else (left, right)
        return float((small / large)[large != 0].max())

    def _violation(
        self, left: Float64[Tensor, "*shape"], right: Float64[Tensor, "*shape"], draw: Draw
    ) -> Float64[Tensor, "*shape"]:
        if self.relation == "≤":
            return (left - right).clamp(min=0)
        if self.relation == "≥":
            return (right - left).clamp(min=0)
        apart = (left - right).abs()
        if self.remainder is None:
            return apart
        return (apart - self.remainder(draw.inputs).view_as(apart)).clamp(min=0)


def difference(a: Values | Tensor, b: Values | Tensor) -> float:
    """Return the largest difference of two lines over the largest entry; inf if not comparable."""
    pair = aligned(a, b)
    return float("inf") if pair is None else _relative((pair[0] - pair[1]).abs(), *pair)


def _relative(violation: Tensor, *pair: Tensor) -> float:
    scale = float(torch.stack(pair).abs().max())
    return float(violation.max()) / scale if scale else 0.0


@dataclass(frozen=True)
class Derivation:
    """A result, derived in one or several chains of lines.

    >>> derivation: Derivation = DERIVATIONS["attention-from-svd"]
    >>> max(derivation.check(seed=0)) < TOLERANCE  # the relative errors of its lines
    True
    """

    name: str
    title: str
    given: str
    """Symbols and assumptions, in prose with inline TeX between dollar signs."""
    draw: Callable[[torch.Generator], Inputs]
    """Random float64 inputs, of random sizes."""
    steps: tuple[Step, ...]
    letters: Callable[[Inputs], Mapping[str, Letter]] = lambda _: {}
    """Additional letters of the lines, such as `v_a` (`va`)."""
    indices: Callable[[Inputs], Mapping[str, range]] = lambda _: {}
    """Free indices of the lines and their values, in the order of axes."""
    laws: Callable[[Inputs], Mapping[str, Law]] = lambda _: {}
    """Distributions of random variables inside of expectations."""
    defined: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Letters and functions defined in TeX."""

    def __post_init__(self) -> None:
        if self.steps[0].relation:
            raise ValueError(f"{self.name}: the first line begins a chain, without a sign")

    @property
    def chains(self) -> Iterator[tuple[Step, ...]]:
        """Yield the chains of lines."""
        starts = [i for i, step in enumerate(self.steps) if not step.relation]
        for start, stop in pairwise([*starts, len(self.steps)]):
            yield self.steps[start:stop]

    def at(self, x: Inputs) -> Draw:
        """Return inputs with the scope of lines.

        It has inputs and letters, without underscores, and indices, laws and definitions.
        """
        inputs = {name.replace("_", ""): value for name, value in x.items()}
        letters = {**inputs, **self.letters(x)}
        return Draw(x, Scope(letters, self.indices(x), self.laws(x), self.defined))

    def drawn(self, seed: int) -> Draw:
        """Return random inputs."""
        return self.at(self.draw(torch.Generator().manual_seed(seed)))

    def worst(self, case: WorstCase) -> Draw:
        """Return the worst case of a bound."""
        return self.at(Inputs(self.drawn(0).inputs | case.inputs()))

    def check(self, seed: int) -> tuple[float, ...]:
        """Evaluate every line on random inputs; return the relative error of each."""
        return self.errors(self.drawn(seed))

    def errors(self, draw: Draw) -> tuple[float, ...]:
        """Return the relative error of each line: to the previous line, and within itself."""
        errors = [step.own_error(draw) for step in self.steps]
        for place, (before, step) in enumerate(pairwise(self.steps), 1):
            if step.relation:
                errors[place] = max(errors[place], step.error(before, draw))
        return tuple(errors)
