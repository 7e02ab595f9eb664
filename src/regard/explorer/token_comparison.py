"""Comparison of a token in two contexts: its queries, keys and values, head by head."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap, Layer

LARGEST = 400_000
"""Bytes of cosines and distances for two texts on a page; further shared words are left out."""

Pair: TypeAlias = tuple[int, int]
"""Positions of a word in both texts."""


@dataclass(frozen=True, eq=False)
class TokenComparison:
    """Words shared by two texts, and the similarity of their vectors."""

    pairs: tuple[Pair, ...]
    """Positions of the words; the chosen one first."""
    cosines: Float[Tensor, "pairs layers heads 3"]
    """Of queries, of keys and of values."""
    distances: Float[Tensor, "pairs layers heads 3"]
    """Norms of the differences."""
    vectors: tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    """Queries, keys and values of the chosen word in both texts, each (layers, heads, width)."""


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
    kept = pairs[: max(LARGEST // (32 * _heads(first)), 1)]
    cosines, distances = [], []
    for one, other in zip(first.layers, second.layers, strict=True):
        alike, apart = _compared(one, other, kept)
        cosines.append(alike)
        distances.append(apart)
    (i, j), *_ = kept
    return TokenComparison(
        tuple(kept),
        torch.stack(cosines, 1),
        torch.stack(distances, 1),
        (_of_word(first, i), _of_word(second, j)),
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
    """Return the position of a word; of several tokens the last, which attends to the others.

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
    """A token without spaces and case."""
    return token.strip().casefold() or token


def _shape(one: AttentionMap) -> tuple[object, ...] | None:
    """Return the shape of comparable maps; None if queries and keys are different words."""
    if one.queries != one.keys:
        return None
    layers = {
        (len(layer.heads), layer.record.query.shape[3], layer.record.value.shape[3])
        for layer in one.layers
    }
    return (one.name, len(one.layers), *layers) if len(layers) == 1 else None


def _heads(one: AttentionMap) -> int:
    return sum(len(layer.heads) for layer in one.layers)


def _compared(one: Layer, other: Layer, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Cosines and distances, each (pairs, heads, 3)."""
    here, there = (list(places) for places in zip(*pairs, strict=True))
    both = [
        (mine[:, here].transpose(0, 1), its[:, there].transpose(0, 1))
        for mine, its in zip(_parts(one), _parts(other), strict=True)
    ]
    cosines = [F.cosine_similarity(mine, its, dim=-1) for mine, its in both]
    distances = [(mine - its).norm(dim=-1) for mine, its in both]
    return torch.stack(cosines, -1), torch.stack(distances, -1)


def _of_word(one: AttentionMap, place: int) -> tuple[Tensor, Tensor, Tensor]:
    """Its query, key and value in each layer and head."""
    of_layers = [_parts(layer) for layer in one.layers]
    query, key, value = (
        torch.stack([part[:, place] for part in parts]) for parts in zip(*of_layers, strict=True)
    )
    return query, key, value


def _parts(layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of the heads that are shown, each (heads, n, width)."""
    record, heads = layer.record, list(layer.heads)
    kv_heads = [record.kv_heads[head] for head in heads]
    dtype = torch.promote_types(record.query.dtype, torch.float32)
    query, key, value = record.query[0, heads], record.key[0, kv_heads], record.value[0, kv_heads]
    return query.to(dtype), key.to(dtype), value.to(dtype)
