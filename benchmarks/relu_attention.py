"""ReLU attention: weights that can be zero, and sum to anything."""

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention import reference
from regard.attention.config import SCORES
from regard.attention.mask import Mask
from regard.attention.softmax import ScoreAttention
from regard.attention.types import DenseBias, Keys, Queries, Weights


class Relu(ScoreAttention):
    """α_ij = max(s_ij, 0) / n for the n allowed keys (Wortsman et al., 2023, arXiv:2309.08586)."""

    name = "relu"
    supports = replace(SCORES, differentiable=False)  # the slope jumps at 0

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """max(s_ij, 0) / n over the n allowed keys."""
        allowed = reference.allowed(query, key, mask)
        positive = reference.scores(query, key, bias).clamp(min=0)
        return torch.where(allowed, positive / allowed.sum(-1, keepdim=True).clamp(min=1), 0.0)

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        if allowed is None:
            return scores.relu() / scores.shape[-1]
        n = allowed.sum(-1, keepdim=True).clamp(min=1)
        return scores.relu().masked_fill(~allowed, 0.0) / n
