"""Types of attention: shapes of tensors, and biases by position."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeGuard, cast, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

ScoreMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(score, row, head, query index, key index) → score, as in FlexAttention."""

Queries: TypeAlias = Float[Tensor, "batch heads queries d"]
Keys: TypeAlias = Float[Tensor, "batch kv_heads keys d"]
Values: TypeAlias = Float[Tensor, "batch kv_heads keys e"]
Outputs: TypeAlias = Float[Tensor, "batch heads queries e"]
DenseBias: TypeAlias = Float[Tensor, "heads queries keys"]
"""A bias for the positions of one call, the input of references."""
AddedScores: TypeAlias = Float[Tensor, "*rows heads queries keys"]
"""A bias at given positions, shared by all rows of the batch or one per row."""
Weights: TypeAlias = Float[Tensor, "batch heads queries keys"]
QueryPositions: TypeAlias = Int[Tensor, "*rows queries"]
"""Positions of the queries, shared by all rows of the batch or one set per row."""
KeyPositions: TypeAlias = Int[Tensor, " keys"]


@runtime_checkable
class Bias(Protocol):
    """A number added to the score of each query and key, by head and positions.

    >>> from regard.positions import Alibi
    >>> x = torch.zeros(1, 1, 3, 8)  # equal tokens
    >>> Softmax().weights(x, x, bias=Alibi(heads=1))[0, 0, 0]
    tensor([0.3346, 0.3333, 0.3320])
    """

    def dense(self, query_positions: QueryPositions, key_positions: KeyPositions) -> AddedScores:
        """Return the bias as a tensor."""

    def score_mod(self) -> ScoreMod:
        """Return a function (score, row, head, query position, key position) → score with bias.

        Indices are tensors that broadcast; FlexAttention passes scalars.
        """


@runtime_checkable
class RelativeVectors(Protocol):
    """Vectors added to keys and values by their position relative to the query.

    >>> from regard.positions import ShawVectors
    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> Softmax()(query, key, value, bias=ShawVectors(d=8, clip=2)).shape
    torch.Size([1, 2, 5, 8])
    """

    def scores(
        self, query: Queries, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Weights:
        """Return the products of each query with the vectors added to the keys."""

    def gather(
        self, weights: Weights, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Outputs:
        """Return the weighted sums of the vectors added to the values."""


AnyBias: TypeAlias = Bias | RelativeVectors


def adds_vectors(bias: object) -> TypeGuard[RelativeVectors]:
    """Whether a bias adds vectors to keys and values; in a tenth of the time of isinstance."""
    return hasattr(bias, "gather") and hasattr(bias, "scores")


def adds_numbers(bias: object) -> TypeGuard[Bias]:
    """Whether a bias adds a number to each score."""
    return hasattr(bias, "dense") and hasattr(bias, "score_mod")


@dataclass(frozen=True, eq=False)
class PositionedBias:
    """A bias at the positions of given queries and keys."""

    bias: AnyBias
    query_positions: QueryPositions
    key_positions: KeyPositions

    def scores(self, query: Queries) -> Tensor:
        """Return the term added to the scores of the (scaled) queries."""
        if adds_vectors(self.bias):
            return self.bias.scores(query, self.query_positions, self.key_positions)
        numbers = cast(Bias, self.bias).dense(self.query_positions, self.key_positions)
        return numbers.to(query.dtype)

    def gather(self, weights: Weights) -> Tensor | float:
        """Return the term added to the output."""
        if adds_vectors(self.bias):
            return self.bias.gather(weights, self.query_positions, self.key_positions)
        return 0.0
