"""Verdicts of studies."""

from typing import Any

from regard.studies.finding import Verdict
from regard.studies.study import Study


def verdict(study: Study[Any], *assignments: str) -> Verdict:
    """Return the verdict of a study with parameters written as `name=value`."""
    return study.with_texts(assignments).verdict
