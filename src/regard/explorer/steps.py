"""From query and key to weight, step by step, as one head computed it."""

from math import isclose

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Mask, RelativeVectors
from regard.attention.exact import Exact
from regard.attention.sparse import BlockSparse
from regard.explorer.capture import Captured, exact_of, positions_of


def steps(
    captured: Captured, row: int, head: int
) -> list[tuple[str, Float[Tensor, "queries keys"]]]:
    """The matrices on the way, in float32 at least, each with its name; the last is the weights.

    Of a mechanism that isn't exact there is no more to show than products and weights.
    """
    query, key = _heads(captured, row, head)
    scores = query @ key.mT
    found = [("q·k", scores)]
    exact, d = exact_of(captured.mechanism), query.shape[-1]
    if exact is not None:
        if (scale := exact.scale(d)) != 1:
            scores = scores * scale
            found.append(("÷ √d" if isclose(scale, d**-0.5) else f"× {scale:.4g}", scores))
        if captured.bias is not None:
            scores = scores + _position(captured, row, head, exact)
            found.append(("+ position", scores))
        hidden = ~_visible(captured, row, head)
        if hidden.any():
            found.append(("masked", scores.masked_fill(hidden, float("-inf"))))
    return [*found, ("weight", captured.weights[row, head])]


def has_scores(captured: Captured) -> bool:
    """Whether each key has a score; otherwise the weights are those that a mechanism implies."""
    return exact_of(captured.mechanism) is not None


def output(captured: Captured, row: int, head: int) -> Float[Tensor, "queries e"]:
    """What one head gathered: weights · values, and vectors of distances where values have them."""
    weights = captured.weights
    group = weights.shape[1] // captured.value.shape[1]
    gathered = weights[row, head] @ captured.value[row, head // group].to(weights.dtype)
    if isinstance(captured.bias, RelativeVectors):
        gathered = gathered + captured.bias.gather(weights, *positions_of(captured))[row, head]
    return gathered


def _heads(captured: Captured, row: int, head: int) -> tuple[Tensor, Tensor]:
    """A head's queries and keys, a token a row; several heads may share their keys."""
    query, key = captured.query, captured.key
    group = query.shape[1] // key.shape[1]
    dtype = torch.promote_types(query.dtype, torch.float32)
    return query[row, head].to(dtype), key[row, head // group].to(dtype)


def _position(captured: Captured, row: int, head: int, exact: Exact) -> Tensor:
    """What is added to the scores for where queries and keys stand."""
    query, bias, places = captured.query, captured.bias, positions_of(captured)
    if isinstance(bias, RelativeVectors):
        return bias.scores(query * exact.scale(query.shape[-1]), *places)[row, head]
    assert bias is not None
    added = bias.dense(*places)
    return (added[row if len(added) > 1 else 0] if added.ndim == 4 else added)[head]


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
