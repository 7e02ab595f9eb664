"""Every mechanism again, in float64, straight from its formula: slow, obvious, the oracle."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def softmax(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    bias: Float[Tensor, "heads queries keys"] | None = None,
) -> Float[Tensor, "batch heads queries keys"]:
    """α_ij = exp(q_i·k_j/√d + b_ij) / Σ_l exp(q_i·k_l/√d + b_il) over the allowed keys."""
    batch, heads, queries, d = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    weights = torch.zeros(batch, heads, queries, keys, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                looked_at = [j for j in range(keys) if allowed[b, h, i, j]]
                scores = [
                    float(query[b, h, i].double() @ key[b, h // group, j].double()) / math.sqrt(d)
                    + (0.0 if bias is None else float(bias[h, i, j]))
                    for j in looked_at
                ]
                top = max(scores, default=0.0)
                total = sum(math.exp(score - top) for score in scores)
                for j, score in zip(looked_at, scores, strict=True):
                    weights[b, h, i, j] = math.exp(score - top) / total
    return weights


def gather(
    weights: Float[Tensor, "batch heads queries keys"],
    value: Float[Tensor, "batch kv_heads keys e"],
) -> Float[Tensor, "batch heads queries e"]:
    """c_i = Σ_j α_ij v_j, consecutive query heads sharing a value head."""
    group = weights.shape[1] // value.shape[1]
    return weights @ value.double().repeat_interleave(group, dim=1)
