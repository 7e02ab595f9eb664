"""Low rank: attention of low rank, and other approximations."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.low_rank.truncation import truncation
from regard.studies.low_rank.projection import projection
from regard.studies.low_rank.approximations import approximations
from regard.studies.low_rank.block_graph import block_graph
from regard.studies.low_rank.furthest import furthest
