"""Recurrent networks: gradients through time, and what attention does for them."""

from typing import Any

from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = ()
