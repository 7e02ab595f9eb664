"""Low rank: attention of low rank, and other approximations."""

from typing import Any

from regard.studies.low_rank.approximations import approximations
from regard.studies.low_rank.block_graph import block_graph
from regard.studies.low_rank.furthest import furthest
from regard.studies.low_rank.projection import projection
from regard.studies.low_rank.truncation import truncation
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (truncation, projection, approximations, block_graph, furthest)
