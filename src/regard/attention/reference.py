"""Every mechanism again, in float64, straight from its formula: slow, obvious, the oracle.

Each gives the matrix that the mechanism applies to the values; `gather` applies it.
"""

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


def argmax(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    bias: Float[Tensor, "heads queries keys"] | None = None,
) -> Float[Tensor, "batch heads queries keys"]:
    """1 for the allowed key with the highest score, the first of several; 0 for the others."""
    query, key = _pairs(query, key)
    scores = (query * key).sum(-1) / math.sqrt(query.shape[-1])
    scores = scores if bias is None else scores + bias.double()
    weights = torch.zeros_like(scores)
    for place in allowed.any(-1).nonzero().tolist():
        row, looked_at = scores[tuple(place)], allowed[tuple(place)]
        best = max(float(score) for score in row[looked_at])
        first = min(j for j in range(len(row)) if looked_at[j] and float(row[j]) == best)
        weights[(*place, first)] = 1.0
    return weights


def linformer(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    project_key: Float[Tensor, "#kv_heads k length"],
    project_value: Float[Tensor, "#kv_heads k length"],
) -> Float[Tensor, "batch heads queries keys"]:
    """softmax(Q(EK)ᵀ/√d)·F, with hidden columns of E and F zero."""
    keys, group = key.shape[2], query.shape[1] // key.shape[1]
    shown = allowed[:, ::group, :1].double()
    first, second = (
        (x.detach().double()[:, :, :keys] * shown).repeat_interleave(group, 1)
        for x in (project_key, project_value)
    )
    projected = first @ key.double().repeat_interleave(group, 1)
    scores = query.double() @ projected.mT / math.sqrt(query.shape[-1])
    return scores.softmax(-1) @ second


def elu(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
) -> Float[Tensor, "batch heads queries keys"]:
    """φ(x) = x + 1 for x > 0, else e^x."""
    query, key = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in _pairs(query, key))
    return _normalised((query * key).sum(-1), allowed)


def polynomial(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    degree: int,
) -> Float[Tensor, "batch heads queries keys"]:
    """(q·k)^p."""
    query, key = _pairs(query, key)
    return _normalised((query * key).sum(-1) ** degree, allowed)


def fourier(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    directions: Float[Tensor, "m d"],
    sigma: float,
) -> Float[Tensor, "batch heads queries keys"]:
    """The mean over w of cos(w·(q − k)/σ)."""
    query, key = _pairs(query, key)
    return _normalised(((query - key) / sigma @ directions.double().mT).cos().mean(-1), allowed)


def favor_positive(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    directions: Float[Tensor, "m d"],
) -> Float[Tensor, "batch heads queries keys"]:
    """The mean over w of exp(w·(x + y)) e^(−(‖x‖² + ‖y‖²)/2), x = q/d^¼ and y = k/d^¼."""
    x, y = (z / z.shape[-1] ** 0.25 for z in _pairs(query, key))
    factor = (-(x.square().sum(-1) + y.square().sum(-1)) / 2).exp()
    return _normalised(((x + y) @ directions.double().mT).exp().mean(-1) * factor, allowed)


def favor_trigonometric(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    directions: Float[Tensor, "m d"],
) -> Float[Tensor, "batch heads queries keys"]:
    """The mean over w of cos(w·(x − y)) e^((‖x‖² + ‖y‖²)/2)."""
    x, y = (z / z.shape[-1] ** 0.25 for z in _pairs(query, key))
    factor = ((x.square().sum(-1) + y.square().sum(-1)) / 2).exp()
    return _normalised(((x - y) @ directions.double().mT).cos().mean(-1) * factor, allowed)


def favor_hyperbolic(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    directions: Float[Tensor, "m d"],
) -> Float[Tensor, "batch heads queries keys"]:
    """The mean over w of cosh(w·(x + y)) e^(−(‖x‖² + ‖y‖²)/2)."""
    x, y = (z / z.shape[-1] ** 0.25 for z in _pairs(query, key))
    factor = (-(x.square().sum(-1) + y.square().sum(-1)) / 2).exp()
    return _normalised(((x + y) @ directions.double().mT).cosh().mean(-1) * factor, allowed)


def _pairs(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """Queries (b, h, i, 1, d) and keys (b, h, 1, j, d), consecutive heads sharing a key head."""
    group = query.shape[1] // key.shape[1]
    key = key.double().repeat_interleave(group, dim=1)
    return query.double()[:, :, :, None], key[:, :, None]


def _normalised(kernel: Tensor, allowed: Tensor) -> Tensor:
    """The kernel over its sum over the allowed keys, zero where there is none."""
    shown = torch.where(allowed, kernel, 0.0)
    total = shown.sum(-1, keepdim=True)
    return torch.where(allowed.any(-1, keepdim=True), shown / total, 0.0)
