"""Question 6: sources of bias, in a model with one parameter.

The model gives two answers the probabilities σ(z) and σ(−z), and learns z by gradient descent. The
same sources in a Transformer are studied in `regard.studies.knowledge.bias`.
"""

import math

from regard.studies.finding import Measurements, at_least, equal

COMMON = 0.8
"""Share of the more frequent answer in biased data."""


def sources_of_bias() -> Measurements:
    """Probability of the more frequent answer after training, and after five steps without bias."""
    parent = trained(0.0, COMMON, steps=2000)
    child = trained(parent, 0.5, steps=5)
    yield equal("6: bias from the data", sigmoid(parent), COMMON, within=1e-6)
    yield at_least("6: bias from the parent (unbiased: 0.5)", sigmoid(child), 0.55)
    yield equal("6: bias from the metric, accuracy", float(sigmoid(parent) > 0.5), 1)


def trained(z: float, share: float, steps: int, rate: float = 0.5) -> float:
    """Return z after gradient descent on the cross-entropy, for a share of the frequent answer."""
    for _ in range(steps):
        z += rate * (share - sigmoid(z))
    return z


def sigmoid(z: float) -> float:
    """Return the probability of the more frequent answer."""
    return 1 / (1 + math.exp(-z))
