"""Question 6: where bias comes from, in a model of one number.

It gives two answers the probabilities σ(z) and σ(−z), and learns z by gradient descent. What the
same three sources do to a Transformer is in `regard.studies.knowledge.bias`.
"""

import math

from regard.studies.finding import at_least, equal
from regard.studies.quiz.checked import Check, checked

COMMON = 0.8
"""Share of the commoner answer in data that are biased."""


@checked
def sources_of_bias() -> Check:
    """Where can a model's bias come from?

    From its data, from the model that it was finetuned from, and from the metric.
    """
    parent = learned(0.0, COMMON, steps=2000)
    child = learned(parent, 0.5, steps=5)
    yield (
        f"P(commoner answer): trained on {COMMON:.0%} of it; then for 5 steps on equal shares; "
        "and the share of it among the answers that score best"
    )
    yield equal("6: from the data", sigmoid(parent), COMMON, within=1e-6)
    yield at_least("6: from the parent, 0.5 would be fair", sigmoid(child), 0.55)
    yield equal("6: from the metric, accuracy", float(sigmoid(parent) > 0.5), 1)


def learned(z: float, share: float, steps: int, rate: float = 0.5) -> float:
    """z after descending the cross entropy of data with this share of the commoner answer."""
    for _ in range(steps):
        z += rate * (share - sigmoid(z))
    return z


def sigmoid(z: float) -> float:
    """The probability of the commoner answer."""
    return 1 / (1 + math.exp(-z))
