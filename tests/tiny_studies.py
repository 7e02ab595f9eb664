"""Studies without their figures, which take most of the time."""

import sys
from typing import Any

import pytest

from regard.studies.finding import Drawing, Verdict
from regard.studies.study import Study

NOTHING = Drawing(svg="<svg></svg>", png=b"", alt="nothing")


def verdict(study: Study[Any], *assignments: str) -> Verdict:
    """What a study finds with parameters written as `name=value`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[study.function.__module__], "_drawn", lambda *_: NOTHING)
        return study.with_texts(assignments).verdict
