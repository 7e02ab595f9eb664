"""Sums of φ(q_i)·φ(k_j) v_j over the keys before each query, without leak or overflow.

φ(k_j) comes in two factors, values·e^(c_j), and a hidden key has c_j = −∞. Every sum over keys is
kept divided by e^m, where m is the largest c_j among the keys of this sum, by row and head. So all
exponents are ≤ 0, and nothing depends on a key that isn't in the sum. Without keys, m = −∞ and the
sum is zero.

Inside a chunk, weights are computed pairwise; the chunks before it are one sum, the carry.

Letters in shapes: b rows, g key/value heads, r query heads for each, c chunks of l tokens,
m features, e the width of a value.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.feature_maps import FeatureMap


class Carry(NamedTuple):
    """The sum over earlier keys of the last key's document."""

    sums: Float[Tensor, "b g m e"]
    maximum: Float[Tensor, "b g"]
    document: Int[Tensor, " b"]


class Part(NamedTuple):
    """A sum for each query."""

    sums: Float[Tensor, "b g *queries e"]
    maximum: Float[Tensor, "b g *queries 1"]


class Chunks(NamedTuple):
    """Features and values of tokens, and the document of each."""

    query: Float[Tensor, "b g c r l m"]
    key: Float[Tensor, "b g c l m"]
    scale: Float[Tensor, "b g c l"]
    value: Float[Tensor, "b g c l e"]
    documents: Int[Tensor, "b c l"]


class Tokens(NamedTuple):
    """Queries in groups that share a key head, keys and values; n tokens."""

    query: Float[Tensor, "b g r n d"]
    key: Float[Tensor, "b g n d"]
    value: Float[Tensor, "b g n e"]
    hidden: Bool[Tensor, "b n"]
    documents: Int[Tensor, "b n"]

    def padded(self, multiple: int) -> "Tokens":
        """Append hidden tokens of the last document, up to a multiple of `multiple`."""
        *vectors, hidden, documents = self
        more = -hidden.shape[1] % multiple
        if not more:
            return self
        query, key, value = (F.pad(x, (0, 0, 0, more)) for x in vectors)
        hidden = F.pad(hidden, (0, more), value=True)
        documents = torch.cat([documents, documents[:, -1:].expand(-1, more)], 1)
        return Tokens(query, key, value, hidden, documents)

    def flipped(self) -> "Tokens":
        """Reverse the order of the tokens."""
        *vectors, hidden, documents = self
        query, key, value = (x.flip(-2) for x in vectors)
        return Tokens(query, key, value, hidden.flip(1), documents.flip(1))

    def split(self, length: int) -> "Iterator[Tokens]":
        """Return segments of `length` tokens; the last one may be shorter."""
        *vectors, hidden, documents = self
        fields = *(x.split(length, -2) for x in vectors), hidden.split(length, 1)
        return map(Tokens, *fields, documents.split(length, 1))

    def chunks(self, features: FeatureMap, length: int) -> Chunks:
        """Return features and values in chunks of a length that divides the number of tokens."""
        query, _ = features(self.query.unflatten(3, (-1, length)).transpose(2, 3))
        key, scale = features(self.key.unflatten(2, (-1, length)))
        scale = scale.masked_fill(self.hidden.unflatten(1, (-1, length))[:, None], float("-inf"))
        value = with_one(self.value.unflatten(2, (-1, length)))
        return Chunks(query, key, scale, value, self.documents.unflatten(1, (-1, length)))


def scan(chunks: Chunks, carry: Carry, pattern: Bool[Tensor, "l l"]) -> tuple[Part, Carry]:
    """Sum over the chunks before each query's own, and over its own, masked by `pattern`.

    Returns the sums, (b, g, c, r, l, e), and the carry after the last token.
    """
    before, carry = _before(chunks, carry)
    return _with_inside(chunks, before, pattern), carry


def _before(chunks: Chunks, carry: Carry) -> tuple[Part, Carry]:
    """Return the sum over the chunks before each query's own, in its document, and the new carry.

    Chunks are processed one after the other, so that the carry stays in the cache.
    """
    query, key, scale, value, documents = chunks
    ends = torch.cat([carry.document[:, None], documents[..., -1]], 1)
    counted = torch.where((documents == ends[:, 1:, None])[:, None], scale, float("-inf"))
    running = _running(torch.cat([carry.maximum[..., None], counted.amax(-1)], -1), ends)
    now = finite(running[..., 1:])
    written = (counted - now[..., None]).exp()[..., None] * value
    same = (ends[:, 1:] == ends[:, :-1])[:, None]
    kept = torch.where(same, running[..., :-1] - now, float("-inf")).exp()[..., None, None]
    sums, reads = carry.sums, []
    each_chunk = (x.unbind(2) for x in (query.flatten(3, 4), key.mT, written, kept))
    for rows, columns, more, factor in zip(*each_chunk, strict=True):
        reads.append(rows @ sums)
        sums = torch.addcmul(columns @ more, factor, sums)
    reached = (documents == ends[:, :-1, None])[:, None]
    maximum = torch.where(reached, running[..., :-1, None], float("-inf"))
    read = torch.stack(reads, 2).unflatten(3, query.shape[3:5])
    part = Part(read, maximum[:, :, :, None, :, None])
    return part, Carry(sums, running[..., -1], ends[:, -1])


def _with_inside(chunks: Chunks, before: Part, pattern: Bool[Tensor, "l l"]) -> Part:
    """Add the sum over each query's own chunk."""
    query, key, scale, value, documents = chunks
    visible = (documents[..., :, None] == documents[..., None, :]) & pattern
    counted = torch.where(visible[:, None], scale[..., None, :], float("-inf"))[:, :, :, None]
    maximum = torch.maximum(counted.amax(-1, keepdim=True), before.maximum)
    weights = (query.flatten(3, 4) @ key.mT).unflatten(3, query.shape[3:5])
    weights = weights * (counted - finite(maximum)).exp()
    inside = (weights.flatten(3, 4) @ value).unflatten(3, query.shape[3:5])
    kept = (before.maximum - finite(maximum)).exp()
    return Part(torch.addcmul(inside, kept, before.sums), maximum)


def _running(
    maxima: Float[Tensor, "b g c"], documents: Int[Tensor, "b c"]
) -> Float[Tensor, "b g c"]:
    """Return the running maximum within each document."""
    n = documents.shape[1]
    so_far = torch.ones(n, n, dtype=torch.bool, device=maxima.device).tril()
    same = documents[:, :, None] == documents[:, None, :]
    counted = torch.where((so_far & same)[:, None], maxima[..., None, :], float("-inf"))
    return counted.amax(-1)


def merge(first: Part, second: Part) -> Part:
    """Add two sums over different keys."""
    maximum = torch.maximum(first.maximum, second.maximum)
    one, two = (part.sums * (part.maximum - finite(maximum)).exp() for part in (first, second))
    return Part(one + two, maximum)


def shares_of(
    scale: Float[Tensor, "*n"], counted: Bool[Tensor, "*n"]
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n_but_last"]]:
    """Return e^(c − m) of counted scales, 0 of others, and their maximum m along the last axis."""
    counted_scale = torch.where(counted, scale, float("-inf"))
    maximum = counted_scale.amax(-1)
    return (counted_scale - finite(maximum)[..., None]).exp(), maximum


def finite(maximum: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Replace −∞, the maximum of no keys, by 0: e^(−∞ − 0) is 0, but e^(−∞ − −∞) is NaN."""
    return maximum.masked_fill(maximum == float("-inf"), 0.0)


def with_one(value: Float[Tensor, "*n e"]) -> Float[Tensor, "*n e_and_1"]:
    """Append a 1 to each value, whose weighted sum is the normalizer."""
    return torch.cat([value, value.new_ones(*value.shape[:-1], 1)], -1)
