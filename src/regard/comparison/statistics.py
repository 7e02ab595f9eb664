"""Means over seeds, and differences between rows that share their seeds. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from regard.metrics import Interval

LEVEL = 0.05
"""Family-wise error rate: probability of rejecting any true null hypothesis."""
SEEDS = 3
"""Smallest number of seeds to show an interval; with two, Student's covers nearly all scores."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A row minus the baseline, over their common seeds."""

    mean: Interval
    """Mean with the 95 % interval of the paired t-test, not corrected for multiple comparisons."""
    p: float
    """p value of the paired t-test; NaN with fewer than two common seeds."""
    adjusted_p: float
    """p value adjusted by Holm's method for all rows that are compared with the baseline."""
    seeds: int

    @property
    def distinct(self) -> bool:
        """Whether the difference is significant after adjustment."""
        return self.adjusted_p < LEVEL


def t_interval(values: Sequence[float], low: float = -inf, high: float = inf) -> Interval:
    """Return the mean with Student's 95 % interval; its ends are NaN for a single value.

    The interval is clipped to the possible means, from `low` to `high`, without loss of coverage.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a mean needs at least one value")
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return Interval(mean, nan, nan)
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    half = float(stdtrit(n - 1, 0.975)) * float(np.std(values, ddof=1)) / sqrt(n)
    return Interval(mean, max(low, mean - half), min(high, mean + half))


def paired_p(differences: Sequence[float]) -> float:
    """Return the two-sided p value of the paired t-test (Student, 1908).

    1 if all differences are 0. If they are equal and not 0, it is 0, but NaN for fewer than
    `SEEDS`: two scores of few examples are often equal by chance. NaN for fewer than two.
    """
    n = len(differences)
    if n < 2:
        return nan
    mean, spread = float(np.mean(differences)), float(np.std(differences, ddof=1))
    if spread <= 1e-9 * abs(mean):  # equal but for rounding
        return 1.0 if mean == 0 else 0.0 if n >= SEEDS else nan
    from scipy.special import stdtr

    return float(2 * stdtr(n - 1, -abs(mean) / (spread / sqrt(n))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's step-down method (Holm, 1979).

    The k-th smallest of m is multiplied by m - k + 1; adjusted values stay in ascending order and
    at most 1. NaN stays NaN and isn't counted.
    """
    order = sorted((p, i) for i, p in enumerate(p_values) if p == p)
    adjusted, highest = [nan] * len(p_values), 0.0
    for rank, (p, i) in enumerate(order):
        highest = max(highest, min(1.0, p * (len(order) - rank)))
        adjusted[i] = highest
    return adjusted


def compare_with(
    baseline: Mapping[int, float],
    others: Mapping[str, Mapping[int, float]],
    largest: float = inf,
) -> dict[str, Difference]:
    """Return the difference of each row from the baseline, over the seeds that both have.

    Rows are scores by seed. A row without a common seed is left out. Intervals of differences
    are clipped to ±`largest`.
    """
    paired = {
        name: [scores[seed] - baseline[seed] for seed in sorted(scores.keys() & baseline.keys())]
        for name, scores in others.items()
    }
    paired = {name: differences for name, differences in paired.items() if differences}
    p_values = [paired_p(differences) for differences in paired.values()]
    return {
        name: Difference(
            mean=t_interval(differences, -largest, largest),
            p=p,
            adjusted_p=adjusted,
            seeds=len(differences),
        )
        for (name, differences), p, adjusted in zip(
            paired.items(), p_values, holm(p_values), strict=True
        )
    }
