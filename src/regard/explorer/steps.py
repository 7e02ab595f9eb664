"""From query and key to weight, step by step, as one head computed it."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention, Mask, RelativeVectors
from regard.attention.exact import Exact
from regard.attention.sparse import BlockSparse
from regard.explorer.capture import Captured


def steps(
    captured: Captured, row: int, head: int
) -> list[tuple[str, Float[Tensor, "queries keys"]]]:
    """The matrices on the way, in float32 at least, each with its name; the last is the weights.

    Of a mechanism that isn't exact there is no more to show than products and weights.
    """
    query, key = _heads(captured, row, head)
    scores = query @ key.mT
    found = [("q·k", scores)]
    exact = _exact(captured.mechanism)
    if exact is not None:
        if exact.scaled:
            scores = scores * query.shape[-1] ** -0.5
            found.append(("÷ √d", scores))
        if captured.bias is not None:
            scores = scores + _position(captured, row, head, exact)
            found.append(("+ position", scores))
        hidden = ~_visible(captured, row, head)
        if hidden.any():
            found.append(("masked", scores.masked_fill(hidden, float("-inf"))))
    return [*found, ("weight", captured.weights[row, head])]


def _heads(captured: Captured, row: int, head: int) -> tuple[Tensor, Tensor]:
    """A head's queries and keys, a token a row; several heads may share their keys."""
    query, key = captured.query, captured.key
    group = query.shape[1] // key.shape[1]
    dtype = torch.promote_types(query.dtype, torch.float32)
    return query[row, head].to(dtype), key[row, head // group].to(dtype)


def _exact(mechanism: Attention) -> Exact | None:
    """What turns scores into weights, where there are scores."""
    inner = mechanism.exact if isinstance(mechanism, BlockSparse) else mechanism
    return inner if isinstance(inner, Exact) else None


def _position(captured: Captured, row: int, head: int, exact: Exact) -> Tensor:
    """What is added to the scores for where queries and keys stand."""
    query, key = captured.query, captured.key
    place = torch.arange(key.shape[2], device=key.device)
    queries = (captured.mask or Mask()).query_positions(query.shape[2], len(place), key.device)
    bias = captured.bias
    if isinstance(bias, RelativeVectors):
        scaled = query * query.shape[-1] ** -0.5 if exact.scaled else query
        return bias.scores(scaled, queries, place)[row, head]
    assert bias is not None
    added = bias.dense(queries, place)
    return (added[row if len(added) > 1 else 0] if added.ndim == 4 else added)[head]


def _visible(captured: Captured, row: int, head: int) -> Tensor:
    """Which keys a query may look at."""
    mechanism, query, key = captured.mechanism, captured.query, captured.key
    mask, (heads, n) = captured.mask or Mask(), query.shape[1:3]
    if isinstance(mechanism, BlockSparse):
        causal = mask.alignment is not None
        mask = mask & mechanism.pattern(heads, n, causal=causal, device=query.device)
    dense = mask.to_dense(n, key.shape[2], query.device)
    return dense.expand(len(query), heads, n, key.shape[2])[row, head]
