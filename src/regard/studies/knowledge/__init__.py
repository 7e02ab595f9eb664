"""Knowledge: what a model recalls, and what it makes up."""

from typing import Any

from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = ()
