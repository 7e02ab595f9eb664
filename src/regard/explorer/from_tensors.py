"""Views of the attention of a mechanism to tensors, without a model."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import AnyBias, Attention, Mask
from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap, Layer, Panel
from regard.explorer.intercept import make_record
from regard.explorer.page import View


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
    bias: AnyBias | None = None,
) -> View:
    """Return the attention of a mechanism to tensors, without a model.

    `queries` and `keys` name the rows; the default is numbers from 1.

    Raises:
        UserError: the number of names isn't that of the tokens.
        MismatchError: weights · values isn't the output of the mechanism.

    >>> from regard.attention import Softmax
    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> regard.look_at_attention(Softmax(), query, key, value, title="softmax")
    View('softmax')
    """
    for names, rows in ((queries, query.shape[2]), (keys, key.shape[2])):
        if len(names) not in (0, rows):
            raise UserError(f"{len(names)} names for {rows} tokens; give each token one name")
    out = mechanism(query, key, value, mask=mask, bias=bias)
    record = make_record("attention", mechanism, (query, key, value), out, mask=mask, bias=bias)
    shown = AttentionMap(
        name="attention",
        queries=tuple(queries) or _numbers(query),
        keys=tuple(keys) or _numbers(key),
        layers=(Layer("0", record, tuple(range(out.shape[1]))),),
    )
    return View(title, (Panel(title, (shown,)),))


def _numbers(x: Float[Tensor, "1 heads n d"]) -> tuple[str, ...]:
    return tuple(str(i) for i in range(1, x.shape[2] + 1))
