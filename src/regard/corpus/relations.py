"""Relations: the probability that a mention in a document states the answer to a question.

Learned from questions with answers and the documents of their subjects, by distant supervision
(Mintz et al., 2009): mentions of the right answer are positive examples, all others negative.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from math import exp, log

import msgspec
import numpy as np

from regard.corpus.index import Token

BEFORE, AFTER, AROUND = 3, 2, 8
"""Numbers of words before and after a mention with position, and before it without position."""
RAREST = 3
"""Smallest number of mentions with a feature, to keep the feature."""
_DIGIT = re.compile(r"\d")


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """The probability that a mention states an answer, by logistic regression on its words."""

    weights: dict[str, float]
    bias: float

    def probability(self, features: Iterable[str]) -> float:
        """Return the probability that a mention with these features states the answer."""
        logit = self.bias + sum(self.weights.get(name, 0.0) for name in features)
        return 1 / (1 + exp(-logit)) if logit > 0 else exp(logit) / (1 + exp(logit))


def mention_features(tokens: Sequence[Token], start: int, end: int, rank: int) -> frozenset[str]:
    """Return the words around the tokens start to end of a document, and the mention's rank.

    All digits are the same feature. The rank is the number of mentions before it.
    """
    words = [_DIGIT.sub("0", token.word) for token in tokens[max(0, start - AROUND) : end + AFTER]]
    before, after = words[: min(start, AROUND)], words[min(start, AROUND) + end - start :]
    near = before[-BEFORE:]
    return frozenset(
        [
            *(f"before: {word}" for word in before),
            *(f"-{i}: {word}" for i, word in enumerate(reversed(near), 1)),
            *(f"-{i}…: {' '.join(near[-i:])}" for i in range(2, len(near) + 1)),
            *(f"+{i}: {word}" for i, word in enumerate(after, 1)),
            f"rank: {min(rank, BEFORE)}",
        ]
    )


def fit_relation(mentions: Sequence[tuple[frozenset[str], bool]]) -> Relation:
    """Fit a relation to mentions: their features, and whether the answer is the right one.

    If all are right, words predict nothing, and n mentions give the odds n + 1 (Laplace).
    """
    if all(right for _, right in mentions):
        return Relation(weights={}, bias=log(len(mentions) + 1))
    from scipy.sparse import csr_matrix

    from regard.logistic import fit_labels

    counts = Counter(name for features, _ in mentions for name in features)
    kept = sorted(name for name, count in counts.items() if count >= RAREST)
    column = {name: i for i, name in enumerate(kept)}
    rows = [[*sorted(column[x] for x in one if x in column), len(kept)] for one, _ in mentions]
    starts = np.cumsum([0, *map(len, rows)])
    places = np.array([place for row in rows for place in row])
    shape = (len(rows), len(kept) + 1)
    design = csr_matrix((np.ones(len(places)), places, starts), shape=shape)
    right = np.array([float(label) for _, label in mentions])
    *weights, bias = fit_labels(design, right).tolist()
    return Relation(weights=dict(zip(kept, weights, strict=True)), bias=bias)
