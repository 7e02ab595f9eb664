"""Linear probes: ridge regression of targets on the states of a model."""

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Tensor

PENALTY = 1e-3
"""Penalty as a share of the mean variance of the states."""
Probe = Callable[[Tensor], Tensor]


def fit_probe(
    states: Float64[Tensor, "n d"],
    targets: Float64[Tensor, "n k"],
    weights: Float64[Tensor, " n"] | None = None,
) -> Probe:
    """Return an affine map from states to targets, fitted by ridge regression.

    Rows count equally, or by their weights.
    """
    weights = torch.ones_like(states[:, 0]) if weights is None else weights
    shares = weights[:, None] / weights.sum()
    center, average = (shares * states).sum(0), (shares * targets).sum(0)
    x, y = states - center, targets - average
    covariance = x.mT @ (shares * x)
    penalty = PENALTY * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=x.dtype)
    solution = torch.linalg.solve(covariance + penalty, x.mT @ (shares * y))
    return lambda new: (new - center) @ solution + average
