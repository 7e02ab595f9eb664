"""Attention whose weights are sigmoids of the scores, each on its own."""

from typing import Any

import torch
from torch import Tensor

from regard.attention import reference
from regard.attention.base import at_least_float32
from regard.attention.mask import Mask
from regard.attention.score_config import SigmoidConfig
from regard.attention.softmax import ScoreAttention
from regard.attention.types import DenseBias, Keys, Queries, Weights


class Sigmoid(ScoreAttention):
    """α_ij = σ(s_ij + b) for the allowed keys (Ramapuram et al., 2024, arXiv:2409.04431).

    With b = −log n, the weights of n scores of 0 sum to about 1.

    >>> x = torch.zeros(1, 1, 4, 8)  # equal tokens
    >>> Sigmoid(bias=0.0).weights(x, x, mask=Mask.causal())[0, 0, 2]
    tensor([0.5000, 0.5000, 0.5000, 0.0000])
    """

    name = "sigmoid"
    supports = SigmoidConfig.supports

    def __init__(self, *, bias: float, **options: Any) -> None:
        """`bias` is b, usually −log of the context length."""
        super().__init__(**options)
        self.bias = bias

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """1 / (1 + e^(−s_ij − b)) for the allowed keys."""
        allowed = reference.allowed(query, key, mask)
        scores = reference.scores(query, key, bias) + self.bias
        return torch.where(allowed, 1 / (1 + (-scores).exp()), 0.0)

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        weights = (at_least_float32(scores) + self.bias).sigmoid()
        return weights if allowed is None else weights.masked_fill(~allowed, 0.0)
