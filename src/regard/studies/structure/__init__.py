"""Structure: how far layers see, and what is learned from text without labels."""

from typing import Any

from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = ()
