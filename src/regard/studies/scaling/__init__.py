"""Scaling and cost: division of products by √d, and costs of a layer."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.scaling.scale import scale
from regard.studies.scaling.complexity import complexity
