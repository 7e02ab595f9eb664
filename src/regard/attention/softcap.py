"""Softmax of bounded scores."""

import math
from typing import Any

from torch import Tensor

from regard.attention import reference
from regard.attention.config import SoftmaxConfig
from regard.attention.mask import Mask
from regard.attention.softmax import ScoreAttention, softmax
from regard.attention.types import DenseBias, Keys, Queries, Weights


class SoftcappedSoftmax(ScoreAttention):
    """softmax(c·tanh(s/c)) of scores s: none is beyond ±c (Gemma Team, 2024, arXiv:2408.00118, §2).

    A bias is part of the scores; masks are not.
    """

    name = "softmax"
    supports = SoftmaxConfig.supports

    def __init__(self, *, softcap: float, **options: Any) -> None:
        """`softcap` is the bound c."""
        super().__init__(**options)
        self.softcap = softcap

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """α_ij = exp(c·tanh(s_ij/c)) / Σ_l exp(c·tanh(s_il/c)) over the allowed keys."""
        allowed = reference.allowed(query, key, mask)
        d = self.scale_dim or query.shape[-1]
        scale = (1 / math.sqrt(d) if self.scaled else 1.0) / self.divisor
        scores = reference.scores(query, key, bias, scale=scale)
        kernel = (self.softcap * (scores / self.softcap).tanh()).exp()
        return reference.normalized(kernel, allowed)

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        return softmax(self.capped(scores), allowed)

    def capped(self, scores: Weights) -> Weights:
        """Return c·tanh(s/c)."""
        return self.softcap * (scores / self.softcap).tanh()
