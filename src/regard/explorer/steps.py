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


def has_scores(captured: Captured) -> bool:
    """Whether each key has a score; otherwise the weights are those that a mechanism implies."""
    return _exact(captured.mechanism) is not None


def output(captured: Captured, row: int, head: int) -> Float[Tensor, "queries e"]:
    """What one head gathered: weights · values, and vectors of distances where values have them."""
    weights = captured.weights
    group = weights.shape[1] // captured.value.shape[1]
    gathered = weights[row, head] @ captured.value[row, head // group].to(weights.dtype)
    if isinstance(captured.bias, RelativeVectors):
        gathered = gathered + captured.bias.gather(weights, *_places(captured))[row, head]
    return gathered


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
    query, bias = captured.query, captured.bias
    queries, place = _places(captured)
    if isinstance(bias, RelativeVectors):
        scaled = query * query.shape[-1] ** -0.5 if exact.scaled else query
        return bias.scores(scaled, queries, place)[row, head]
    assert bias is not None
    added = bias.dense(queries, place)
    return (added[row if len(added) > 1 else 0] if added.ndim == 4 else added)[head]


def _places(captured: Captured) -> tuple[Tensor, Tensor]:
    """Where queries and keys stand."""
    queries, keys, device = captured.query.shape[2], captured.key.shape[2], captured.key.device
    positions = (captured.mask or Mask()).query_positions(queries, keys, device)
    return positions, torch.arange(keys, device=device)


def _visible(captured: Captured, row: int, head: int) -> Tensor:
    """Which keys a query may look at."""
    mechanism, query, key = captured.mechanism, captured.query, captured.key
    mask, (heads, n) = captured.mask or Mask(), query.shape[1:3]
    dense = mask.to_dense(n, key.shape[2], query.device)
    if isinstance(mechanism, BlockSparse):
        causal = mask.alignment is not None
        pattern = mechanism.pattern(heads, n, causal=causal, device=query.device)
        dense = dense & pattern.to_dense(n, n, query.device)
    return dense.expand(len(query), heads, n, key.shape[2])[row, head]
