"""Scaling and cost: why products are divided by √d, and what a layer costs."""

from typing import Any

from regard.studies.scaling.complexity import complexity
from regard.studies.scaling.scale import scale
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (scale, complexity)
