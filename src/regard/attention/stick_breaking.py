"""Stick-breaking attention: the nearest keys take their share first."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention import reference
from regard.attention.mask import Mask
from regard.attention.score_config import StickBreakingConfig
from regard.attention.softmax import WideScoreAttention
from regard.attention.types import DenseBias, Keys, Queries, Weights


class StickBreaking(WideScoreAttention):
    """α_ij = σ(s_ij) Π_(j < k < i) (1 − σ(s_ik)) for j < i (Tan et al., 2024, arXiv:2410.17980).

    A token doesn't attend to itself. The rest of the stick is assigned to no key. Scores are in
    float32 at least: sums of logarithms lose too much precision in bfloat16.

    >>> x = torch.zeros(1, 1, 3, 8)  # equal tokens
    >>> StickBreaking().weights(x, x, mask=Mask.causal())[0, 0, 2]
    tensor([0.2500, 0.5000, 0.0000])
    """

    name = "stick-breaking"
    supports = StickBreakingConfig.supports
    includes_self = False

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """From the nearest allowed key to the farthest: σ(s_ij) of the rest of the stick."""
        allowed = reference.allowed(query, key, mask)
        places = mask.query_positions(query.shape[2], key.shape[2], query.device).tolist()
        scores = reference.scores(query, key, bias)
        shares = 1 / (1 + (-scores).exp())
        weights = torch.zeros_like(shares)
        for i, place in enumerate(places):
            left = torch.ones_like(shares[..., i, 0])
            for j in range(place - 1, -1, -1):
                share = torch.where(allowed[..., i, j], shares[..., i, j], 0.0)
                weights[..., i, j] = left * share
                left = left * (1 - share)
        return weights

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        taken, passed = F.logsigmoid(scores), F.logsigmoid(-scores)
        if allowed is not None:
            passed = passed.masked_fill(~allowed, 0.0)
        after = passed.flip(-1).cumsum(-1).flip(-1) - passed
        weights = (taken + after).exp()
        return weights if allowed is None else weights.masked_fill(~allowed, 0.0)
