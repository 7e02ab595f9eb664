"""Slowly changing sequences."""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def slow_walks(
    draws: int, n: int, d: int, *, reach: float, seed: int | tuple[int, ...]
) -> Float[Tensor, "draws 1 n d"]:
    """Draw normal numbers of variance 1 with a correlation of 1/e at a distance of `reach` tokens.

    With a reach of 0 all are independent.
    """
    kept = math.exp(-1 / reach) if reach else 0.0
    walks = np.random.default_rng(seed).standard_normal((n, draws, 1, d))
    walks[1:] *= math.sqrt(1 - kept**2)
    for i in range(1, n):
        walks[i] += kept * walks[i - 1]
    return torch.from_numpy(walks).permute(1, 2, 0, 3)
