"""Positions: why attention needs them, and the effect of each encoding on the scores."""

from typing import Any

from regard.studies.positions.adding import adding
from regard.studies.positions.permutation import permutation
from regard.studies.positions.relative_bias import relative_bias
from regard.studies.positions.shifting import shifting
from regard.studies.positions.word_order import word_order
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (permutation, word_order, adding, relative_bias, shifting)
