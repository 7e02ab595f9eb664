"""Exercises made from derivations: find the missing line, or the wrong line.

Altered lines are evaluated on random inputs, which decide if they are right. A line whose TeX isn't
supported is altered as a whole, by a sign or a factor.
"""

import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice, takewhile

from torch import Tensor

from regard.derivations.derivation import Derivation, Draw, Step, difference
from regard.derivations.tex_algebra import Unsupported
from regard.derivations.tex_parser import TOKEN
from regard.derivations.tex_value import Values, last_side

SEEDS = range(3)
"""Seeds of the inputs for comparing lines."""
DIFFERENT = 1e-3
"""Smallest relative difference between an altered line and the right one."""
CHOICES = 4
"""Number of lines to choose from."""
_SIGNS = re.compile(r"(?:=|\\leq|\\geq|\\approx)?\s*")
_LETTER = re.compile(r"[a-zA-Z]|\\(?:alpha|beta|gamma|mu|omega|sigma)")


@dataclass(frozen=True)
class Line:
    """A line to choose, with the result of its evaluation."""

    tex: str
    right: bool
    """Whether it is the answer."""
    reason: str


@dataclass(frozen=True)
class MissingLine:
    """The lines of a chain up to a gap, and lines to choose for it."""

    before: tuple[str, ...]
    choices: tuple[Line, ...]


@dataclass(frozen=True)
class WrongLine:
    """A chain of equal lines, one of which is altered."""

    first: str
    lines: tuple[Line, ...]


def missing_line(derivation: Derivation, key: str) -> MissingLine | None:
    """Return an exercise, chosen by a key; None if no line has enough alterations."""
    rng = random.Random(key)
    for chain, place in _places(derivation, rng):
        wrong = _alterations(derivation, chain[place], CHOICES - 1, rng)
        if len(wrong) == CHOICES - 1:
            lines = [_right(derivation, chain, place), *map(_wrong, wrong)]
            before = tuple(step.tex for step in chain[:place])
            return MissingLine(before, tuple(rng.sample(lines, len(lines))))
    return None


def wrong_line(derivation: Derivation, key: str) -> WrongLine | None:
    """Return an exercise, chosen by a key; None if no chain of three lines has an alteration."""
    rng = random.Random(f"{key}, wrong line")
    for chain, place in _places(derivation, rng):
        wrong = _alterations(derivation, chain[place], 1, rng) if len(chain) > 2 else []
        if wrong:
            ((tex, apart),) = wrong
            lines = [_equal(derivation, chain, i) for i in range(1, len(chain))]
            right = f"The right line is ${_body(chain[place].tex)}$."
            reason = f"It isn't equal to the first line: {_apart(apart)}. {right}"
            lines[place - 1] = Line(tex, True, reason)
            return WrongLine(chain[0].tex, tuple(lines))
    return None


def _places(derivation: Derivation, rng: random.Random) -> list[tuple[tuple[Step, ...], int]]:
    """Return all lines but the first of each chain, shuffled; those with supported TeX first."""
    places = [(chain, i) for chain in _chains(derivation) for i in range(1, len(chain))]
    rng.shuffle(places)
    return sorted(places, key=lambda at: at[0][at[1]].value is not None)


def _chains(derivation: Derivation) -> list[tuple[Step, ...]]:
    """Return the initial parts of chains with only equalities, of at least two lines."""
    chains = []
    for first, *others in derivation.chains:
        equal = takewhile(lambda step: step.relation == "=", others)
        chains.append((first, *equal))
    return [chain for chain in chains if len(chain) > 1]


def _right(derivation: Derivation, chain: Sequence[Step], place: int) -> Line:
    step = chain[place]
    error = _error(derivation, chain[place - 1], step)
    reason = f"Equal to the line before on random inputs{error}. {step.reason}"
    return Line(step.tex, True, reason)


def _wrong(alteration: tuple[str, float]) -> Line:
    tex, apart = alteration
    return Line(tex, False, f"It isn't equal to the line before: {_apart(apart)}.")


def _equal(derivation: Derivation, chain: Sequence[Step], place: int) -> Line:
    error = _error(derivation, chain[0], chain[place])
    return Line(chain[place].tex, False, f"Equal to the first line on random inputs{error}.")


def _error(derivation: Derivation, first: Step, second: Step) -> str:
    error = max(second.error(first, draw) for draw in _draws(derivation))
    return f", to a relative {error:.0e}" if error else ""


def _apart(difference: float) -> str:
    return f"on random inputs they differ by {difference:.2g} times the larger value"


def _body(tex: str) -> str:
    """Return a line without its sign."""
    return tex[_SIGNS.match(tex).end() :]  # type: ignore[union-attr]


@cache
def _draws(derivation: Derivation) -> tuple[Draw, ...]:
    return tuple(map(derivation.drawn, SEEDS))


def _alterations(
    derivation: Derivation, step: Step, count: int, rng: random.Random
) -> list[tuple[str, float]]:
    """Return at most `count` altered lines, with their difference from the right one."""
    right = [step.values(draw) for draw in _draws(derivation)]
    altered = list(_altered(derivation, step))
    rng.shuffle(altered)
    differences = ((tex, _largest_difference(right, values)) for tex, values in altered)
    return list(islice((one for one in differences if DIFFERENT < one[1] < math.inf), count))


def _largest_difference(
    right: Sequence[Values | Tensor], values: Iterable[Values | Tensor]
) -> float:
    """Return the largest difference over all inputs; 0 for a line with unsupported TeX."""
    try:
        return max(map(difference, right, values))
    except Unsupported:
        return 0.0


def _altered(derivation: Derivation, step: Step) -> Iterator[tuple[str, Iterable[Values | Tensor]]]:
    """Yield altered lines as TeX, with their values on all inputs."""
    draws = _draws(derivation)
    if step.value is None:
        for tex in altered_tex(step.tex):
            yield tex, map(partial(Draw.read, tex=tex), draws)
    elif _is_product(step.tex):
        for factor, sign in ((-1.0, "-"), (2.0, r"2 \, "), (0.5, r"\frac{1}{2} \, ")):
            values = [factor * step.value(draw.inputs).double() for draw in draws]
            yield f"= {sign}{_body(step.tex)}", values


def altered_tex(tex: str) -> Iterator[str]:
    """Yield a line with one sign, number or letter changed, except the base e."""
    side = last_side(tex)
    places = [
        found
        for found in TOKEN.finditer(tex, side.start, side.stop)
        if not (found[0] == "e" and tex.startswith("^", found.end()))
    ]
    letters = sorted({found[0] for found in places if _LETTER.fullmatch(found[0])})
    for place in places:
        for other in _others(place[0], letters):
            yield tex[: place.start()] + other + tex[place.end() :]


def _others(token: str, letters: Sequence[str]) -> list[str]:
    """Return plausible wrong replacements of a token: a sign, a number or a letter of the line."""
    if token in ("+", "-"):
        return ["-" if token == "+" else "+"]
    if token.isdecimal():
        return [str(int(token) + by) for by in (1, -1) if int(token) + by > 1]
    return [letter for letter in letters if letter != token] if token in letters else []


def _is_product(tex: str) -> bool:
    """Return whether a line is a product, so that a factor can be prepended."""
    body, depth = _body(tex), 0
    for token in TOKEN.findall(body):
        depth += (token in "({[") - (token in ")}]")
        if (token in ("+", "-") and not depth) or token == r"\quad":
            return False
    return body != "0"
