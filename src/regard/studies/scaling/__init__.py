"""Scaling and cost: why products are divided by √d, and what a layer costs."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.scaling.scale import scale
from regard.studies.scaling.complexity import complexity
