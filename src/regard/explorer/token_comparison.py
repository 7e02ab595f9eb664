"""Comparison of a token in two contexts: its queries, keys and values, head by head."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.attention.base import at_least_float32
from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap

LARGEST = 400_000
"""Largest number of bytes of cosines and distances for two texts; further words are left out."""

Pair: TypeAlias = tuple[int, int]
"""Positions of a word in both texts."""


@dataclass(frozen=True, eq=False)
class TokenComparison:
    """Words shared by two texts, and the similarity of their vectors."""

    pairs: tuple[Pair, ...]
    """Positions of the words; the chosen one first."""
    cosines: Float[Tensor, "pairs layers heads 3"]
    """Cosine similarities of queries, of keys and of values."""
    distances: Float[Tensor, "pairs layers heads 3"]
    """Euclidean distances of queries, of keys and of values."""
    vectors: tuple[tuple[Float[Tensor, "layers heads width"], ...], ...]
    """Queries, keys and values of the chosen word, in each of both texts."""


def compare_tokens(
    first: AttentionMap, second: AttentionMap, word: str | None = None
) -> TokenComparison | None:
    """Compare the words shared by two texts; None if nothing can be compared.

    `word` comes first; by default the first word that both texts have.

    Raises:
        UserError: a text doesn't have the word.
    """
    if _shape(first) is None or _shape(first) != _shape(second):
        return None
    pairs = shared_tokens(first.queries, second.queries, word)
    if not pairs:
        return None
    here, there = _vectors(first), _vectors(second)
    layers, heads, *_ = here[0].shape
    kept = pairs[: max(LARGEST // (32 * layers * heads), 1)]
    rows, columns = (list(places) for places in zip(*kept, strict=True))
    both = [(x[:, :, rows], y[:, :, columns]) for x, y in zip(here, there, strict=True)]
    cosines = [F.cosine_similarity(x, y, dim=-1) for x, y in both]
    distances = [(x - y).norm(dim=-1) for x, y in both]
    return TokenComparison(
        tuple(kept),
        torch.stack(cosines, -1).permute(2, 0, 1, 3),
        torch.stack(distances, -1).permute(2, 0, 1, 3),
        tuple(tuple(x[:, :, 0] for x in side) for side in zip(*both, strict=True)),
    )


def shared_tokens(first: Sequence[str], second: Sequence[str], word: str | None) -> list[Pair]:
    """Return all pairs of positions with the same token, the chosen one first.

    Raises:
        UserError: a text doesn't have the word.
    """
    pairs = [
        (i, j)
        for i, one in enumerate(first)
        for j, other in enumerate(second)
        if _plain(one) == _plain(other)
    ]
    if word is not None:
        chosen = (find_token(first, word), find_token(second, word))
    elif pairs:
        chosen = next((pair for pair in pairs if _plain(first[pair[0]]).isalnum()), pairs[0])
    else:
        return []
    return [chosen, *(pair for pair in pairs if pair != chosen)]


def find_token(tokens: Sequence[str], word: str) -> int:
    """Return the position of a word: of its last token, which attends to the previous ones.

    Raises:
        UserError: the text doesn't have it.
    """
    wanted = _plain(word)
    for i, token in enumerate(tokens):
        if _plain(token) == wanted:
            return i
    folded = [token.casefold() for token in tokens]
    start = "".join(folded).find(wanted) if wanted.strip() else -1
    if start < 0:
        raise UserError(f"the word “{word}” isn't in “{''.join(tokens)}”; choose one of both texts")
    ends = accumulate(len(token) for token in folded)
    return next(i for i, end in enumerate(ends) if end >= start + len(wanted))


def _plain(token: str) -> str:
    """Return a token stripped and case-folded."""
    return token.strip().casefold() or token


def _shape(one: AttentionMap) -> tuple[object, ...] | None:
    """Return the shape by which maps are comparable; None if queries and keys differ."""
    if one.queries != one.keys:
        return None
    layers = {
        (len(layer.heads), layer.record.query.shape[3], layer.record.value.shape[3])
        for layer in one.layers
    }
    return (one.name, len(one.layers), *layers) if len(layers) == 1 else None


def _vectors(one: AttentionMap) -> list[Float[Tensor, "layers heads n width"]]:
    """Return queries, keys and values of the shown heads, in at least float32."""
    parts = []
    for layer in one.layers:
        record, heads = layer.record, list(layer.heads)
        kv_heads = [record.kv_heads[head] for head in heads]
        parts.append(
            (record.head_queries[0, heads], record.key[0, kv_heads], record.value[0, kv_heads])
        )
    stacked = (torch.stack(layers) for layers in zip(*parts, strict=True))
    return [at_least_float32(x) for x in stacked]
