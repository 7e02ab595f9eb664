"""Positions: why attention needs them, and the effect of each encoding on the scores."""

# ruff: noqa: F401 (the order is that of the book)
from regard.studies.positions.permutation import permutation, word_order
from regard.studies.positions.position_vectors import adding, relative_bias, shifting
