"""Positions: why attention needs them, and the effect of each encoding on the scores."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.positions.permutation import permutation
from regard.studies.positions.permutation import word_order
from regard.studies.positions.position_vectors import adding
from regard.studies.positions.position_vectors import relative_bias
from regard.studies.positions.position_vectors import shifting
