"""Confidence intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from jaxtyping import Float

Z95 = 1.959963984540054
"""The two-sided 95 % point of the normal distribution."""


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def percent(self) -> str:
        """The same in percent, for people."""
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}]"


def wilson(successes: int, n: int) -> Interval:
    """A share with Wilson's score interval (Wilson, 1927), good near 0 and 1 too."""
    if n < 1:
        raise ValueError("a share needs at least one trial")
    share = successes / n
    center = (share + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2))
    return Interval(share, max(0.0, min(share, center - half)), min(1.0, max(share, center + half)))


def bootstrap(
    examples: Sequence[float] | Float[np.ndarray, "n *rest"],
    statistic: Callable[[np.ndarray], float],
    *,
    seed: int = 0,
    draws: int = 1000,
) -> Interval:
    """A statistic with its percentile interval over resampled examples (Efron, 1979).

    Raises:
        ValueError: there are no examples.
    """
    values = np.asarray(examples)
    if not len(values):
        raise ValueError("an interval needs at least one example")
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(values), (draws, len(values)))
    low, high = np.quantile([statistic(values[pick]) for pick in picks], [0.025, 0.975])
    return Interval(float(statistic(values)), float(low), float(high))
