"""Attention of each query to a few chosen keys, without n × n scores of each head.

Shapes: n queries and keys of one row, h query heads, g heads of keys and values.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.base import without_autocast

SCORES = 1 << 20
"""Index scores computed at a time, over all index heads."""
KEYS = 1 << 11
"""Keys of all heads gathered at a time, so that they stay in a core's cache."""
GROUP = 16
"""Scores per group: the largest scores of a row are searched by the maxima of groups first."""


def largest(
    scores: Float[Tensor, "queries keys"], k: int
) -> tuple[Float[Tensor, "queries k"], Int[Tensor, "queries k"]]:
    """Return the k largest scores of each query, the largest first, and their keys.

    `GROUP` divides the number of keys. The k largest scores lie in the k groups with the largest
    maxima, so that fewer numbers are sorted.
    """
    groups = scores.shape[1] // GROUP
    if groups <= k:
        return scores.topk(k)
    best = scores.view(-1, GROUP, groups).amax(1).topk(k, sorted=False).indices
    members = torch.arange(0, scores.shape[1], groups, device=scores.device)
    keys = (best[:, None] + members[:, None]).flatten(1)
    found = scores.gather(1, keys).topk(k)
    return found.values, keys.gather(1, found.indices)


def attend(
    query: Float[Tensor, "h queries d"],
    key: Float[Tensor, "g n d"],
    value: Float[Tensor, "g n e"],
    chosen: Int[Tensor, "queries k"],
) -> Float[Tensor, "h queries e"]:
    """Return softmax attention to the chosen keys, which all heads share.

    The scores are q·k: scale the queries first.
    """
    key, value = key.contiguous(), value.contiguous()  # or each index_select copies them
    step = max(1, KEYS // (len(query) * chosen.shape[1]))
    parts = zip(query.split(step, 1), chosen.split(step), strict=True)
    with without_autocast(query):
        return torch.cat([_attend(part, key, value, keys) for part, keys in parts], 1)


def _attend(query: Tensor, key: Tensor, value: Tensor, chosen: Tensor) -> Tensor:
    groups, k = key.shape[0], chosen.shape[1]
    grouped = query.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    keys, values = (
        x.index_select(1, chosen.flatten()).view(-1, k, x.shape[-1]) for x in (key, value)
    )
    out: Tensor = ((grouped @ keys.mT).softmax(-1) @ values).unflatten(0, (groups, -1))
    return out.transpose(1, 2).flatten(0, 1)
