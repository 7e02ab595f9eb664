"""Positions: why attention needs them, and what each encoding does to the scores."""

from typing import Any

from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = ()
