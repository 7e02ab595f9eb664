"""Softmax over the keys with the highest scores."""

from typing import Any

import torch
from torch import Tensor

from regard.attention import reference
from regard.attention.mask import Mask
from regard.attention.score_config import TopKConfig
from regard.attention.softmax import WideScoreAttention, highest, softmax
from regard.attention.types import DenseBias, Keys, Queries, Weights


class TopK(WideScoreAttention):
    """Softmax over the k allowed keys of each query that score highest, and those equal to them.

    Gupta et al., 2021, arXiv:2106.06899. Other keys have weight and gradient 0. Scores that differ
    by no more than rounding are equal, such as those of equal tokens without positions.
    """

    name = "top-k"
    supports = TopKConfig.supports

    def __init__(self, *, k: int, **options: Any) -> None:
        super().__init__(**options)
        self.k = k

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """Softmax over the allowed keys that score no less than the k-th of them."""
        allowed = reference.allowed(query, key, mask)
        scores = reference.scores(query, key, bias)
        kept = torch.zeros_like(allowed)
        for place in allowed.any(-1).nonzero().tolist():
            row, seen = scores[tuple(place)], allowed[tuple(place)]
            least = sorted((float(score) for score in row[seen]), reverse=True)[: self.k][-1]
            kept[tuple(place)] = seen & (row >= least)
        return reference.softmax(query, key, kept, bias)

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        kept = highest(scores, allowed, self.k)
        return softmax(scores, kept if allowed is None else kept & allowed)
