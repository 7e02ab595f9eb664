"""Kernels: attention in linear time, and how far it is off."""

from typing import Any

from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = ()
