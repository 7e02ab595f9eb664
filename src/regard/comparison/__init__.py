"""Comparisons: a grid of runs, trained by worker processes, in one table and on one page."""
