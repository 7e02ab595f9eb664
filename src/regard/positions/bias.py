"""Positions by the distance between query and key: added to the scores, or to keys and values.

A bias is a number per head and distance; `ShawVectors` are vectors per distance.
"""

import math
from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.types import (
    AddedScores,
    KeyPositions,
    Outputs,
    Queries,
    QueryPositions,
    ScoreMod,
    Weights,
)

Distances: TypeAlias = Int[Tensor, "*shape"]
Indices: TypeAlias = Int[Tensor, "*#shape"]
"""Heads or distances that broadcast against one another."""
Numbers: TypeAlias = Float[Tensor, "*#shape"]


class DistanceBias(nn.Module, ABC):
    """A number for each head and distance j - i of key j from query i."""

    def __init__(self, *, heads: int) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"a bias needs a head, not {heads}")
        self.heads = heads

    @abstractmethod
    def at(self, head: Indices, distance: Indices) -> Numbers:
        """Return the number that a head adds at a distance."""

    def dense(self, query_positions: QueryPositions, key_positions: KeyPositions) -> AddedScores:
        """Return the number that each head adds for each query and key."""
        distance = distances(query_positions, key_positions)
        head = torch.arange(self.heads, device=distance.device)[:, None, None]
        return self.at(head, distance[..., None, :, :])

    def score_mod(self) -> ScoreMod:
        """Return the bias as a `score_mod` of FlexAttention, whose indices are positions."""

        def add(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
            return score + self.at(head, key - query)

        return add


class _BucketBias(DistanceBias):
    """A learned number for each head and bucket of distances, initialized as zero."""

    def __init__(self, *, heads: int, buckets: int) -> None:
        super().__init__(heads=heads)
        self.values = nn.Parameter(torch.zeros(heads, buckets))

    @abstractmethod
    def bucket(self, distance: Distances) -> Distances:
        """Return the bucket of a distance."""

    def at(self, head: Indices, distance: Indices) -> Numbers:
        return self.values[head, self.bucket(distance)]

    def dense(self, query_positions: QueryPositions, key_positions: KeyPositions) -> AddedScores:
        bucket = self.bucket(distances(query_positions, key_positions))
        # On a CPU, forward and backward take a fifth of the time that two index tensors would.
        values = self.values.index_select(1, bucket.flatten())
        return values.view(self.heads, *bucket.shape).movedim(0, -3)


class RelativeBias(_BucketBias):
    """A learned number for each distance: Shaw et al. (2018) with scalars instead of vectors.

    >>> bias = RelativeBias(heads=2, clip=4)
    >>> bias.dense(torch.arange(3), torch.arange(3)).shape  # heads, queries, keys
    torch.Size([2, 3, 3])
    """

    def __init__(self, *, heads: int, length: int | None = None, clip: int | None = None) -> None:
        """For distances below `length`, or for any: those beyond ±`clip` share a number.

        Raises:
            ValueError: not exactly one of `length` and `clip` is given, or it is out of range.
        """
        reach = _reach(length, clip)
        super().__init__(heads=heads, buckets=2 * reach + 1)
        self.length, self.reach = length, reach

    def bucket(self, distance: Distances) -> Distances:
        return clipped(distance, self.reach)

    def dense(self, query_positions: QueryPositions, key_positions: KeyPositions) -> AddedScores:
        """Return the number that each head adds for each query and key.

        Raises:
            ValueError: a distance reaches `length`. Compiled code and `score_mod` (FlexAttention,
                gathered blocks) don't check; they clip it.
        """
        if self.length is not None and not torch.compiler.is_compiling():
            self._require_within_length(distances(query_positions, key_positions))
        return super().dense(query_positions, key_positions)

    def _require_within_length(self, distance: Distances) -> None:
        outside = distance[distance.abs() > self.reach]
        if outside.numel():
            raise ValueError(
                f"a bias of length {self.length} has none for the distance {int(outside[0])}"
            )


def _reach(length: int | None, clip: int | None) -> int:
    """Return the largest distance with its own number."""
    if length is not None and clip is None:
        if length < 1:
            raise ValueError(f"a length must be positive, not {length}")
        return length - 1
    if clip is not None and length is None:
        if clip < 0:
            raise ValueError(f"a clip can't be negative: {clip}")
        return clip
    raise ValueError("a relative bias takes either a length or a clip")


class T5Bias(_BucketBias):
    """A learned number for each bucket of distances, wider far away (Raffel et al., 2020, §2.1).

    >>> bias = T5Bias(heads=2)
    >>> bias.bucket(torch.tensor([0, -1, -15, -16, -100, -1000]))
    tensor([ 0,  1, 15, 16, 30, 31])
    """

    bucket_of: Tensor

    def __init__(
        self,
        *,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
    ) -> None:
        """`buckets` in all; distances from `max_distance` on share the last one.

        With `bidirectional`, half of them are for keys after the query; otherwise such keys count
        as distance 0.

        Raises:
            ValueError: there are too few buckets, or an odd number for two directions.
        """
        bucket_of = _t5_buckets(buckets, max_distance, bidirectional)
        super().__init__(heads=heads, buckets=buckets)
        self.max_distance = max_distance
        self.register_buffer("bucket_of", bucket_of, persistent=False)

    def bucket(self, distance: Distances) -> Distances:
        return self.bucket_of[clipped(distance, self.max_distance)]


def _t5_buckets(buckets: int, max_distance: int, bidirectional: bool) -> Int[Tensor, " distances"]:
    """Return the bucket of each distance from -max_distance to max_distance."""
    if bidirectional and buckets % 2:
        raise ValueError(f"{buckets} buckets can't be halved between two directions")
    one_way = buckets // 2 if bidirectional else buckets
    if one_way < 2 or max_distance <= one_way // 2:
        raise ValueError(
            "a direction needs two buckets or more, and a max_distance above half of them, "
            f"not {one_way} and {max_distance}"
        )
    distance = torch.arange(-max_distance, max_distance + 1)
    behind = _t5_bucket(distance.neg().clamp(min=0), one_way, max_distance)
    if not bidirectional:
        return behind
    ahead = _t5_bucket(distance.clamp(min=0), one_way, max_distance)
    return torch.where(distance > 0, one_way + ahead, behind)


def _t5_bucket(
    distance: Int[Tensor, " distances"], buckets: int, max_distance: int
) -> Int[Tensor, " distances"]:
    """Return the bucket of distances ≥ 0: one each for the first half, then equal ratios.

    Operations and their precision are those of the published code, so that rounding puts each
    distance into the same bucket.
    """
    exact = buckets // 2
    ratio = (distance.clamp(min=1).float() / exact).log() / math.log(max_distance / exact)
    far = exact + (ratio * (buckets - exact)).long()
    return torch.where(distance < exact, distance, far.clamp(max=buckets - 1))


class Alibi(DistanceBias):
    """-slope·|i - j|, on both sides of the query (Press et al., 2022, §3).

    >>> Alibi(heads=2).dense(torch.tensor([2]), torch.arange(3)).squeeze(1)  # heads, keys
    tensor([[-0.1250, -0.0625, -0.0000],
            [-0.0078, -0.0039, -0.0000]])
    """

    slopes: Tensor

    def __init__(self, *, heads: int) -> None:
        """The number of heads determines the slopes."""
        super().__init__(heads=heads)
        self.register_buffer("slopes", torch.tensor(_slopes(heads)), persistent=False)

    def at(self, head: Indices, distance: Indices) -> Numbers:
        return -self.slopes[head] * distance.abs()


def _slopes(heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), … for a power of two n.

    For other numbers, those of the power below, then every other one of the power above (the
    authors' published code).
    """
    power = 2 ** (heads.bit_length() - 1)
    slopes = [2 ** (-8 * k / power) for k in range(1, power + 1)]
    between = [2 ** (-4 * k / power) for k in range(1, 2 * power, 2)]
    return slopes + between[: heads - power]


def distances(
    query_positions: QueryPositions, key_positions: KeyPositions
) -> Int[Tensor, "*rows queries keys"]:
    """Return j - i for query i and key j: negative for earlier keys."""
    return key_positions - query_positions[..., None]


def clipped(distance: Distances, clip: int) -> Distances:
    """Return the index of a clipped distance among 2·clip + 1 entries."""
    return distance.clamp(-clip, clip) + clip


class ShawVectors(nn.Module):
    """Vectors a^K and a^V for each clipped distance, shared by all heads (Shaw et al., 2018).

    No tensor of queries × keys × d is made: each of the 2·clip + 1 vectors is multiplied once
    (§3.3, eq. 5); products are gathered, and weights added up, by distance.

    >>> from regard.attention import Softmax
    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> Softmax()(query, key, value, bias=ShawVectors(d=8, clip=2)).shape
    torch.Size([1, 2, 5, 8])
    """

    def __init__(self, *, d: int, e: int | None = None, clip: int) -> None:
        """Vectors of width `d` for keys and `e` (or `d`) for values; `clip` limits the distance.

        Raises:
            ValueError: `clip` is negative.
        """
        super().__init__()
        if clip < 0:
            raise ValueError(f"a clip can't be negative: {clip}")
        self.clip = clip
        self.keys = nn.Parameter(torch.empty(2 * clip + 1, d))
        self.values = nn.Parameter(torch.empty(2 * clip + 1, d if e is None else e))
        nn.init.normal_(self.keys, std=0.02)
        nn.init.normal_(self.values, std=0.02)

    def scores(
        self, query: Queries, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Weights:
        """Return q_i · a^K_ij, without the 1/√d (eq. 4)."""
        products = query @ self.keys.to(query.dtype).T
        entry = self._entry(query_positions, key_positions)
        return products.gather(-1, entry.expand(*query.shape[:-1], -1))

    def gather(
        self, weights: Weights, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Outputs:
        """Return Σ_j α_ij a^V_ij (eq. 3)."""
        entry = self._entry(query_positions, key_positions)
        collected = weights.new_zeros(*weights.shape[:-1], len(self.values))
        collected = collected.scatter_add(-1, entry.expand_as(weights), weights)
        return collected @ self.values.to(weights.dtype)

    def _entry(
        self, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Int[Tensor, "*rows 1 queries keys"]:
        """Return the index of the vector of each query and key, for all heads."""
        return clipped(distances(query_positions, key_positions), self.clip)[..., None, :, :]
