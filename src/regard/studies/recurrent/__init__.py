"""Recurrent networks: gradients through time, and what attention does for them."""

from typing import Any

from regard.studies.recurrent.backpropagation import backpropagation_through_time
from regard.studies.recurrent.vanishing import vanishing_and_exploding
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (backpropagation_through_time, vanishing_and_exploding)
