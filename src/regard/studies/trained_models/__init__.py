"""Trained models: which architecture, which head, and what training changes."""

from typing import Any

from regard.studies.study import Study
from regard.studies.trained_models.structures import structures
from regard.studies.trained_models.two_heads import two_heads

STUDIES: tuple[Study[Any], ...] = (two_heads, structures)
