"""Softmax with a number added to the denominator, so that a query may attend to nothing."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import reference
from regard.attention.backends import bars
from regard.attention.cost import Cost, Shape
from regard.attention.mask import Mask
from regard.attention.score_config import SoftmaxOneConfig
from regard.attention.softmax import ScoreAttention
from regard.attention.types import DenseBias, Keys, Queries, Weights


class SoftmaxOne(ScoreAttention):
    """α_ij = e^(s_ij) / (e^(z_h) + Σ_l e^(s_il)): as if one more key had score z and value 0.

    Without learned sinks z = 0, which adds 1 (Miller, 2023; Gu et al., 2024, arXiv:2410.10781).
    Sinks by head are those of gpt-oss (OpenAI, 2025). A bias of the first key would not be
    equivalent: it would also add the value of that key.

    >>> x = torch.zeros(1, 1, 3, 8)  # equal tokens
    >>> SoftmaxOne().weights(x, x)[0, 0, 0]  # a fourth is left
    tensor([0.2500, 0.2500, 0.2500])
    """

    name = "softmax-one"
    supports = SoftmaxOneConfig.supports

    def __init__(self, *, heads: int | None = None, **options: Any) -> None:
        """With `heads`, the sink of each head is learned."""
        super().__init__(**options)
        self.sinks = None if heads is None else nn.Parameter(torch.zeros(heads))

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """e^(s_ij) / (e^(z_h) + Σ_l e^(s_il)) over the allowed keys."""
        allowed = reference.allowed(query, key, mask)
        scores = reference.scores(query, key, bias)
        kernel = torch.where(allowed, scores.exp(), 0.0)
        sinks = torch.zeros(1).double() if self.sinks is None else self.sinks.double()
        return kernel / (sinks.exp()[:, None, None] + kernel.sum(-1, keepdim=True))

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        if allowed is not None:
            scores = scores + bars(allowed, scores.dtype)
        sinks = scores.new_zeros(1) if self.sinks is None else self.sinks.to(scores.dtype)
        last = sinks[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, last], -1).softmax(-1)[..., :-1]

    def cost(self, shape: Shape) -> Cost:
        parameters = 0 if self.sinks is None else self.sinks.numel()
        return replace(super().cost(shape), parameters=parameters)
