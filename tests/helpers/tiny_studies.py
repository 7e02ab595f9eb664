"""Measurements of studies: values by name, and those out of bounds."""

from collections.abc import Callable, Iterable
from typing import Any

from regard.studies.finding import Finding, Measurement


def broken(numbers: Iterable[Measurement]) -> list[str]:
    """Return the names of the measurements that are out of bounds."""
    return [number.name for number in numbers if not number.holds]


def needs_every_measurement(
    judge: Callable[..., Iterable[Measurement]], right: tuple[Any, ...], *others: tuple[Any, ...]
) -> None:
    """Require that a claim holds with the right arguments, and fails with each of the others."""
    assert broken(judge(*right)) == []
    for other in others:
        assert broken(judge(*other)), other


def measured(finding: Finding) -> dict[str, float]:
    """Return the measured values by name."""
    return {number.name: number.measured for number in finding.numbers}
