"""Scores of rankings by the rank of the right document."""

import numpy as np
from jaxtyping import Float, Int

from regard.metrics.intervals import Interval, bootstrap, wilson


def ranks(
    scores: Float[np.ndarray, "queries documents"], right: Int[np.ndarray, " queries"]
) -> Int[np.ndarray, " queries"]:
    """The rank of each query's right document, 1 for the best.

    All that doesn't score lower stands before it: ties count against it, so that a model that
    scores all alike finds nothing, and NaN does too.
    """
    own = np.take_along_axis(scores, right[:, None], axis=1)
    return np.asarray((~(scores < own)).sum(axis=1))


def recall_at(ranks: Int[np.ndarray, " queries"], k: int) -> Interval:
    """The share of queries whose right document is among the first k.

    Raises:
        ValueError: there are no queries.
    """
    return wilson(int((ranks <= k).sum()), len(ranks))


def mean_reciprocal_rank(ranks: Int[np.ndarray, " queries"], *, seed: int = 0) -> Interval:
    """The mean of 1/rank (Voorhees, 1999).

    Raises:
        ValueError: there are no queries.
    """
    return bootstrap(1 / ranks, np.mean, seed=seed)
