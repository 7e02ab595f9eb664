"""Trained models: which architecture, which head, and what training changes."""

from typing import Any

from regard.studies.study import Study
from regard.studies.trained_models.architectures import architectures
from regard.studies.trained_models.structures import structures
from regard.studies.trained_models.two_heads import two_heads
from regard.studies.trained_models.untrained import untrained

STUDIES: tuple[Study[Any], ...] = (architectures, two_heads, structures, untrained)
