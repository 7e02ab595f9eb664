"""Correctness of answers, and how well confidence predicts it."""

from collections.abc import Sequence
from math import exp, log

import numpy as np
from jaxtyping import Float

from regard.metrics.intervals import Interval, bootstrap, wilson


def exact_match(predicted: str | None, answer: str) -> bool:
    """Whether both are the same text, white space at the ends aside."""
    return predicted is not None and predicted.strip() == answer.strip()


def accuracy(correct: Sequence[bool]) -> Interval:
    """The share of right answers."""
    return wilson(sum(correct), len(correct))


def perplexity(losses: Sequence[float], counts: Sequence[int], *, seed: int = 0) -> Interval:
    """exp of the mean loss a token, from each document's summed loss and number of tokens."""
    pairs = np.column_stack([losses, counts])
    return bootstrap(pairs, lambda rows: exp(rows[:, 0].sum() / rows[:, 1].sum()), seed=seed)


def bits_per_character(
    losses: Sequence[float], characters: Sequence[int], *, seed: int = 0
) -> Interval:
    """Mean loss a character, in bits, from each document's summed loss in nats and its length.

    Unlike perplexity, it compares models of different tokens.
    """
    pairs = np.column_stack([losses, characters])
    return bootstrap(
        pairs, lambda rows: float(rows[:, 0].sum() / rows[:, 1].sum() / log(2)), seed=seed
    )


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Probability that a positive scores above a negative, ties counting half (Mann–Whitney)."""
    from scipy.stats import rankdata  # here, as it takes half a second to import

    if not len(positive) or not len(negative):
        raise ValueError("AUROC needs both positives and negatives")
    ranks = rankdata(np.concatenate([positive, negative]))
    n = len(positive)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(negative)))


def risk_coverage(
    confidence: Sequence[float], correct: Sequence[bool]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Answer only the most confident share of questions: which share of those is wrong?

    Answers of equal confidence are taken together, as their mean error.

    Returns:
        Coverage, from 1/n to 1, and the risk at each (El-Yaniv & Wiener, 2010).
    """
    scores, wrong = np.asarray(confidence), ~np.asarray(correct, dtype=bool)
    order = np.argsort(-scores, kind="stable")
    level = np.unique(-scores[order], return_inverse=True)[1]
    errors = (np.bincount(level, wrong[order]) / np.bincount(level))[level]
    n = np.arange(1, len(scores) + 1)
    return n / len(scores), np.cumsum(errors) / n
