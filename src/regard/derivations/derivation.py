"""A derivation whose every line is evaluated on random inputs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float64
from torch import Tensor

from regard.derivations.tex_scope import Law, Letter, Scope

TOLERANCE = 1e-9
"""Largest relative error of a line that holds."""

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
class Worst:
    """Inputs for which most of a bound is reached."""

    where: str
    """The inputs in words, with inline TeX between dollar signs."""
    inputs: Callable[[], Inputs]
    share: float = 0.97
    """At least so much of the bound is reached."""


@dataclass(frozen=True)
class Step:
    r"""One line of a derivation.

    The sign that the line begins with (`=`, `\leq`, `\geq`, `\approx`) relates it to the line
    before, and is what the check verifies. A line without a sign begins a new chain.

    >>> first = Step(r"(a + b)^2", lambda x: (x.a + x.b) ** 2, "Given.")
    >>> second = Step("= a^2 + 2ab + b^2", lambda x: x.a**2 + 2 * x.a * x.b + x.b**2, "Expand.")
    >>> second.error(first, Inputs(a=torch.tensor(2.0), b=torch.tensor(3.0)))
    0.0
    """

    tex: str
    """The line in TeX, without dollar signs."""
    value: Value
    """The expression of this line alone, evaluated as it is written."""
    reason: str
    """Why the line follows, in prose with inline TeX between dollar signs."""
    remainder: Value | None = None
    """For a line that begins with `≈`: a bound on the difference, entry by entry."""
    worst: Worst | None = None
    """For a line that begins with `≤`, `≥` or `≈`: where its bound is reached."""

    def __post_init__(self) -> None:
        if (self.relation in ("≤", "≥", "≈")) != (self.worst is not None):
            raise ValueError(f"{self.tex}: a worst case belongs to ≤, ≥ and ≈, which need one")
        if (self.relation == "≈") != (self.remainder is not None):
            raise ValueError(f"{self.tex}: a remainder belongs to ≈, and ≈ needs one")

    @property
    def relation(self) -> Relation:
        """Relation to the line before; empty where a new chain begins."""
        return _SIGNS.get(self.tex.split(maxsplit=1)[0], "")

    @property
    def text(self) -> str:
        """The reason, and how much of a bound is reached where."""
        if self.worst is None:
            return self.reason
        share = f"{self.worst.share:.0%}".replace("%", " %")
        return f"{self.reason} At least {share} of the bound is reached for {self.worst.where}."

    def error(self, before: "Step", x: Inputs) -> float:
        """Return by how much the relation to the line before is violated, relatively.

        The scale is the largest entry of both lines. Lines of different shapes, and values that
        are not finite, have an infinite error.
        """
        left, right = before.value(x).double(), self.value(x).double()
        if left.shape != right.shape or not (left.isfinite().all() and right.isfinite().all()):
            return float("inf")
        scale = float(torch.stack([left.abs().max(), right.abs().max()]).max())
        return float(self._violation(left, right, x).max()) / scale if scale else 0.0

    def reached(self, before: "Step") -> float:
        """Return the share of the bound that is reached in the worst case, of all entries."""
        if self.worst is None:
            raise ValueError(f"{self.tex}: no bound")
        x = self.worst.inputs()
        left, right = before.value(x).double(), self.value(x).double()
        if self.remainder is not None:
            left, right = (left - right).abs(), self.remainder(x)
        small, large = (right, left) if self.relation == "≥" else (left, right)
        return float((small / large)[large != 0].max())

    def _violation(
        self, left: Float64[Tensor, "*shape"], right: Float64[Tensor, "*shape"], x: Inputs
    ) -> Float64[Tensor, "*shape"]:
        if self.relation == "≤":
            return (left - right).clamp(min=0)
        if self.relation == "≥":
            return (right - left).clamp(min=0)
        difference = (left - right).abs()
        return difference if self.remainder is None else (difference - self.remainder(x)).clamp(0)


@dataclass(frozen=True)
class Derivation:
    """A result, proved in small steps; one or several chains of lines.

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
    """What the lines call by a letter of its own beside the inputs, such as `v_a` (`va`)."""
    indices: Callable[[Inputs], Mapping[str, range]] = lambda _: {}
    """Indices for all of whose values lines hold, in the order of the axes of their values."""
    laws: Callable[[Inputs], Mapping[str, Law]] = lambda _: {}
    """Distributions of what is random inside of an expectation."""
    defined: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Letters and functions by their definition in TeX."""

    def __post_init__(self) -> None:
        if self.steps[0].relation:
            raise ValueError(f"{self.name}: the first line begins a chain, without a sign")

    @property
    def chains(self) -> Iterator[tuple[Step, ...]]:
        """The lines, chain by chain."""
        starts = [i for i, step in enumerate(self.steps) if not step.relation]
        for start, stop in pairwise([*starts, len(self.steps)]):
            yield self.steps[start:stop]

    def scope(self, x: Inputs) -> Scope:
        """Return what the lines may name: inputs and letters without underscores, indices, laws."""
        inputs = {name.replace("_", ""): value for name, value in x.items()}
        letters = {**inputs, **self.letters(x)}
        return Scope(letters, self.indices(x), self.laws(x), self.defined)

    def check(self, seed: int) -> tuple[float, ...]:
        """Evaluate every line on random inputs; return the relative error of each.

        A line that begins a chain has error 0.
        """
        x = self.draw(torch.Generator().manual_seed(seed))
        errors = []
        for first, *others in self.chains:
            errors.append(0.0)
            errors.extend(step.error(before, x) for before, step in pairwise([first, *others]))
        return tuple(errors)
