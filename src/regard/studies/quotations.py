"""Numbers of findings in the texts of courses.

A text names what it quotes, `{study:NAME/MEASUREMENT|FORMAT}`, and gets the number when a page is
made. NAME is a study, MEASUREMENT one of its measurements or parameters. FORMAT is that of
`format`, such as `.2f` or `.0%`. `predicted` before it takes the value of the formula. With several
seeds, `least`, `largest`, `mean` or `range` before it is required. `least` and `largest` are
bounds: the least value is rounded down and the largest up, so that "at least" and "at most" are
true of every seed. All others are rounded to nearest, the ends of a range too. `seeds > 0` in place
of a format counts the seeds with such a value: "four of five seeds".
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from statistics import fmean
from typing import TypeVar

import msgspec

from regard.config import Config
from regard.courses import Correction
from regard.studies.finding import Finding

T = TypeVar("T", bound=Config)

QUOTATION = re.compile(r"\{study:([a-z-]+)/([^{}]+)\|([^{}|]+)\}")
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_CHOICES: Mapping[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "least": lambda values: [min(values)],
    "largest": lambda values: [max(values)],
    "mean": lambda values: [fmean(values)],
    "range": lambda values: [min(values), max(values)],
}
_ROUNDING = {"least": ROUND_FLOOR, "largest": ROUND_CEILING}
"""Directions in which bounds are rounded."""
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "≥": operator.ge,
    "≤": operator.le,
}


def with_numbers(value: T, findings: Mapping[str, Finding]) -> T:
    """Return a part or a correction with the numbers that its texts quote.

    Raises:
        KeyError: a text quotes a study that isn't among `findings`, or a measurement that it lacks.
        ValueError: a format isn't one, or doesn't suit the number of seeds.
    """
    return msgspec.convert(_filled(msgspec.to_builtins(value), findings), type(value))


def corrections_of(finding: Finding) -> tuple[Correction, ...]:
    """Return the errors in courses that a finding shows, with its numbers."""
    findings = {finding.study.name: finding}
    return tuple(with_numbers(one, findings) for one in finding.study.corrections)


def _filled(value: object, findings: Mapping[str, Finding]) -> object:
    if isinstance(value, str):
        return QUOTATION.sub(lambda found: _quoted(findings[found[1]], found[2], found[3]), value)
    if isinstance(value, dict):
        return {name: _filled(inside, findings) for name, inside in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(inside, findings) for inside in value]
    return value


def _quoted(finding: Finding, name: str, form: str) -> str:
    """Return a measurement or parameter as text."""
    if name in finding.parameters:
        return format(finding.parameters[name], form)
    values = [value for value in finding.row(name).values if value is not None]
    choice, _, rest = form.rpartition(" ")
    if choice.startswith("seeds "):
        return _counted(values, choice.removeprefix("seeds "), float(rest))
    if choice == "predicted":
        values = [_predicted(finding, name)]
    elif choice in _CHOICES:
        values = list(_CHOICES[choice](values))
    elif choice:
        raise ValueError(f"{finding.study.name}/{name}: {form}: no such choice of a value")
    elif len(values) > 1:
        raise ValueError(f"{finding.study.name}/{name}: {form}: which of {len(values)} seeds?")
    if choice in _ROUNDING:
        return _rounded(values[0], rest, _ROUNDING[choice]).replace("%", " %")
    numbers = dict.fromkeys(format(value, rest).removesuffix("%") for value in values)
    return " to ".join(numbers) + " %" * rest.endswith("%")


def _rounded(value: float, form: str, rounding: str) -> str:
    """Return a value in a format, rounded in a direction.

    Digits after the seventh are rounded to nearest first: they are errors of float32.
    """
    with localcontext(rounding=rounding):
        return format(Decimal(f"{value:.7g}"), f"z{form}")


def _predicted(finding: Finding, name: str) -> float:
    found = {number.name: number.predicted for number in finding.numbers}.get(name)
    if found is None:
        raise ValueError(f"{finding.study.name}/{name}: has no predicted value")
    return found


def _counted(values: Sequence[float], sign: str, bound: float) -> str:
    """Return in words how many seeds have a value beyond a bound."""
    number, total = sum(_COMPARISONS[sign](value, bound) for value in values), len(values)
    many = f"all {_WORDS[total]}" if number == total else f"{_WORDS[number]} of {_WORDS[total]}"
    return f"{many} seeds"
