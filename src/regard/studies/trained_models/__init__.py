"""Trained models: which architecture, which head, and what training changes."""

from typing import Any

from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = ()
