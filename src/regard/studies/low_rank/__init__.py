"""Low rank: attention of low rank, and other approximations."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.low_rank.factors import truncation, projection
from regard.studies.low_rank.approximations import approximations, block_graph, furthest
