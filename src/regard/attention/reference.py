"""Shared parts of the mechanisms' float64 references: slow, simple, for tests only."""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.mask import Mask


def softmax(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    bias: Float[Tensor, "*rows heads queries keys"] | None = None,
    *,
    scale: float | None = None,
) -> Float[Tensor, "batch heads queries keys"]:
    """α_ij = exp(s·q_i·k_j + b_ij) / Σ_l exp(s·q_i·k_l + b_il) over the allowed keys, s = 1/√d."""
    shown = torch.where(allowed, scores(query, key, bias, scale=scale), -math.inf)
    largest = F.pad(shown, (1, 0), value=-math.inf).amax(-1, keepdim=True)  # of no keys, too
    return normalized((shown - largest).exp(), allowed)


def allowed(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    mask: Mask,
) -> Bool[Tensor, "batch heads queries keys"]:
    """Return the mask for every row, head, query and key."""
    (batch, heads, queries, _), keys = query.shape, key.shape[2]
    return mask.to_dense(queries, keys, query.device).expand(batch, heads, queries, keys)


def gather(
    weights: Float[Tensor, "batch heads queries keys"],
    value: Float[Tensor, "batch kv_heads keys e"],
) -> Float[Tensor, "batch heads queries e"]:
    """c_i = Σ_j α_ij v_j, consecutive query heads sharing a value head."""
    group = weights.shape[1] // value.shape[1]
    return weights @ value.double().repeat_interleave(group, dim=1)


def pairs(
    query: Float[Tensor, "batch heads queries d"], key: Float[Tensor, "batch kv_heads keys d"]
) -> tuple[Float[Tensor, "batch heads queries 1 d"], Float[Tensor, "batch heads 1 keys d"]]:
    """Return queries and keys in float64, with axes that broadcast to pairs."""
    group = query.shape[1] // key.shape[1]
    key = key.double().repeat_interleave(group, dim=1)
    return query.double()[:, :, :, None], key[:, :, None]


def scores(
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    bias: Float[Tensor, "*rows heads queries keys"] | None,
    *,
    scale: float | None = None,
) -> Float[Tensor, "batch heads queries keys"]:
    """Return s_ij = s·q_i·k_j + b_ij, s = 1/√d."""
    wide_query, wide_key = pairs(query, key)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    products = scale * (wide_query * wide_key).sum(-1)
    return products if bias is None else products + bias.double()


def highest(
    scores: Float[Tensor, "batch heads queries keys"],
    allowed: Bool[Tensor, "batch heads queries keys"],
    k: int,
) -> Bool[Tensor, "batch heads queries keys"]:
    """Return the allowed keys that score no less than the k-th highest of them."""
    kept = torch.zeros_like(allowed)
    for place in allowed.any(-1).nonzero().tolist():
        row, seen = scores[tuple(place)], allowed[tuple(place)]
        least = sorted((float(score) for score in row[seen]), reverse=True)[:k][-1]
        kept[tuple(place)] = seen & (row >= least)
    return kept


def normalized(
    kernel: Float[Tensor, "batch heads queries keys"],
    allowed: Bool[Tensor, "batch heads queries keys"],
) -> Float[Tensor, "batch heads queries keys"]:
    """Divide a kernel by its sum over the allowed keys; zero where there is none."""
    shown = torch.where(allowed, kernel, 0.0)
    total = shown.sum(-1, keepdim=True)
    return torch.where(allowed.any(-1, keepdim=True), shown / total, 0.0)


def splitmix64(*parts: int) -> int:
    """Return a 64-bit hash of some numbers (SplitMix64, Steele et al., 2014)."""
    state = 0
    for part in parts:
        state = ((state ^ part) + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state


def transition(
    key: Float[Tensor, "batch kv_heads n d"], gates: Mapping[str, Float[Tensor, "batch states n *"]]
) -> Float[Tensor, "batch states n d d"]:
    """T = (I − k (b ⊙ k)ᵀ) D, or D − (b ⊙ κ) κᵀ of a removal key κ.

    D is e^log_decay, by channel or not, or I; b is beta or erase, by channel or not, or 0.
    """
    states = next(iter(gates.values())).shape[1]
    key = key.double().repeat_interleave(states // key.shape[1], dim=1)
    channels = {
        name: (gate if gate.ndim == 4 else gate[..., None]).double().expand_as(key)
        for name, gate in gates.items()
        if name != "write"
    }
    eye = torch.eye(key.shape[-1], dtype=torch.float64)
    decay = torch.diag_embed(channels["log_decay"].exp()) if "log_decay" in gates else eye
    if "removal_key" in gates:
        removal_key = channels["removal_key"]
        erased = channels["erase"] * removal_key
        return decay - erased[..., :, None] * removal_key[..., None, :]
    erase = channels.get("beta", channels.get("erase"))
    if erase is None:
        return decay.expand(*key.shape, -1)
    return (eye - key[..., :, None] * (erase * key)[..., None, :]) @ decay


def recurrence(
    query: Float[Tensor, "batch heads n d"],
    key: Float[Tensor, "batch kv_heads n d"],
    transition: Float[Tensor, "batch states n d d"],
    mask: Mask,
    *,
    write: Float[Tensor, "batch states n"] | None = None,
    scaled: bool,
) -> Float[Tensor, "batch heads_or_states n n"]:
    """weights_tj = s · q_tᵀ T_t … T_(j+1) k_j w_j, s = 1/√d if scaled.

    Tokens beyond a row's length leave the state as it is; a document starts from an empty one.
    """
    batch, states, n, d, _ = transition.shape
    heads = max(query.shape[1], states)
    query = query.double().repeat_interleave(heads // query.shape[1], dim=1)
    key = key.double().repeat_interleave(states // key.shape[1], dim=1)
    weights = torch.zeros(batch, heads, n, n, dtype=torch.float64)
    for b in range(batch):
        length = n if mask.key_lengths is None else int(mask.key_lengths[b])
        for h in range(heads):
            g = h * states // heads
            kept = torch.zeros(d, n, dtype=torch.float64)  # a column for each key
            for t in range(n):
                ids = mask.document_ids
                if ids is not None and t and ids[b, t] != ids[b, t - 1]:
                    kept = torch.zeros_like(kept)
                if t < length:
                    kept = transition[b, g, t] @ kept
                    kept[:, t] = key[b, g, t] * (1.0 if write is None else write[b, g, t].double())
                weights[b, h, t] = query[b, h, t] @ kept
    return weights / math.sqrt(d) if scaled else weights
