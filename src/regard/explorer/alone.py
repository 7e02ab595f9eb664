"""Look at attention alone: at queries, keys and values that no model made."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention, Mask
from regard.explorer.capture import AnyBias, checked
from regard.explorer.look import View
from regard.explorer.maps import Layer, Map, Side


@torch.inference_mode()
def look_at_attention(
    mechanism: Attention,
    query: Float[Tensor, "1 heads queries d"],
    key: Float[Tensor, "1 kv_heads keys d"],
    value: Float[Tensor, "1 kv_heads keys e"],
    *,
    title: str,
    queries: Sequence[str] = (),
    keys: Sequence[str] = (),
    mask: Mask | None = None,
    bias: AnyBias = None,
) -> View:
    """What each head of a mechanism does with them, step by step.

    `queries` and `keys` name the rows; without names, they are counted from 1.

    Raises:
        MismatchError: weights · values isn't what the mechanism gave.
    """
    out = mechanism(query, key, value, mask=mask, bias=bias)
    captured = checked("attention", mechanism, query, key, value, out, mask=mask, bias=bias)
    shown = Map(
        name="attention",
        queries=tuple(queries) or _counted(query),
        keys=tuple(keys) or _counted(key),
        layers=(Layer("0", captured, tuple(range(query.shape[1]))),),
    )
    return View(title, (Side(title, (shown,)),))


def _counted(x: Float[Tensor, "1 heads n d"]) -> tuple[str, ...]:
    return tuple(str(i) for i in range(1, x.shape[2] + 1))
