"""Datasets, batches and the order of examples. Special ids are arguments, never assumed."""

IGNORE = -100
"""The label of a position without loss (`ignore_index` of torch's cross entropy)."""
