"""One word in two contexts: how far apart its queries, keys and values are, head by head."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.explorer.maps import Layer, Map

LARGEST = 400_000
"""Bytes of cosines and distances that a page holds of two texts: others of its words are left."""

Pair: TypeAlias = tuple[int, int]
"""Where a word stands in either text."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Words that two texts share, and how alike what two models made of them is."""

    pairs: tuple[Pair, ...]
    """Where they stand; the chosen one first."""
    cosines: Float[Tensor, "pairs layers heads 3"]
    """Of queries, of keys and of values."""
    distances: Float[Tensor, "pairs layers heads 3"]
    """The lengths of their differences."""
    vectors: tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    """Queries, keys and values of the chosen word in either text, each (layers, heads, width)."""


def compare_words(first: Map, second: Map, word: str | None = None) -> Comparison | None:
    """What became of the words of two texts; None where nothing can be compared.

    `word` is the one that is shown first, by default the first one that both texts have.

    Raises:
        UserError: a text doesn't have the word.
    """
    if _shape(first) is None or _shape(first) != _shape(second):
        return None
    pairs = shared_words(first.queries, second.queries, word)
    if not pairs:
        return None
    kept = pairs[: max(LARGEST // (32 * _heads(first)), 1)]
    cosines, distances = [], []
    for one, other in zip(first.layers, second.layers, strict=True):
        alike, apart = _compared(one, other, kept)
        cosines.append(alike)
        distances.append(apart)
    (i, j), *_ = kept
    return Comparison(
        tuple(kept),
        torch.stack(cosines, 1),
        torch.stack(distances, 1),
        (_of_word(first, i), _of_word(second, j)),
    )


def shared_words(first: Sequence[str], second: Sequence[str], word: str | None) -> list[Pair]:
    """All pairs of places at which two texts have the same token, the chosen one first.

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
        chosen = (find_word(first, word), find_word(second, word))
    elif pairs:
        chosen = next((pair for pair in pairs if _plain(first[pair[0]]).isalnum()), pairs[0])
    else:
        return []
    return [chosen, *(pair for pair in pairs if pair != chosen)]


def find_word(tokens: Sequence[str], word: str) -> int:
    """Where a word stands; of one that is several tokens, the last, which has seen the others.

    Raises:
        UserError: it isn't there.
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
    """A token without what tells only where in a sentence it stands."""
    return token.strip().casefold() or token


def _shape(one: Map) -> tuple[object, ...] | None:
    """What must be alike in two maps; None where queries and keys are different words."""
    if one.queries != one.keys:
        return None
    layers = {
        (len(layer.heads), layer.captured.query.shape[3], layer.captured.value.shape[3])
        for layer in one.layers
    }
    return (one.name, len(one.layers), *layers) if len(layers) == 1 else None


def _heads(one: Map) -> int:
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


def _of_word(one: Map, place: int) -> tuple[Tensor, Tensor, Tensor]:
    """Its query, key and value in each layer and head."""
    of_layers = [_parts(layer) for layer in one.layers]
    query, key, value = (
        torch.stack([part[:, place] for part in parts]) for parts in zip(*of_layers, strict=True)
    )
    return query, key, value


def _parts(layer: Layer) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of the heads that are shown, each (heads, n, width)."""
    captured, heads = layer.captured, list(layer.heads)
    group = captured.query.shape[1] // captured.key.shape[1]
    shared = [head // group for head in heads]
    at_least_float = torch.promote_types(captured.query.dtype, torch.float32)
    query, key, value = captured.query[0, heads], captured.key[0, shared], captured.value[0, shared]
    return query.to(at_least_float), key.to(at_least_float), value.to(at_least_float)
