"""Synthesizer: scores without products of queries and keys (Tay et al., 2020, arXiv:2005.00743).

Shapes: l = length, the longest text in tokens.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import reference
from regard.attention.base import as_dtype, at_least_float32
from regard.attention.cost import Cost, Shape
from regard.attention.gates import Gates
from regard.attention.mask import Mask
from regard.attention.score_config import SynthesizerConfig
from regard.attention.softmax import ScoreAttention, softmax
from regard.attention.state import KeyValueCache, State, StateShape
from regard.attention.types import (
    AnyBias,
    DenseBias,
    KeyPositions,
    Keys,
    Outputs,
    PositionedBias,
    Queries,
    QueryPositions,
    Weights,
)


class Synthesized(nn.Module):
    """Base of learned scores; they have the interface of vectors by relative position."""

    def gather(
        self, weights: Weights, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Outputs:
        """Return zero: nothing is added to the values."""
        return weights.new_zeros(1)


class DenseScores(Synthesized):
    """ReLU(q) B + b with q = x A + a, which the layer projects as its queries (eq. 3).

    All heads share B and b, and the last position has no column, as in assignment 5 of Stanford's
    CS224N (2021): its score is 0.
    """

    def __init__(self, *, d: int, length: int) -> None:
        """For queries of width `d`."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d, length - 1).uniform_(-1e-3, 1e-3))
        self.bias = nn.Parameter(torch.zeros(length - 1))

    def scores(
        self, query: Queries, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Weights:
        """Return the scores of each query and the keys at these positions."""
        weight, bias = (
            as_dtype(F.pad(x, (0, 1)), query.dtype).index_select(-1, key_positions)
            for x in (self.weight, self.bias)
        )
        return F.relu(query) @ weight + bias

    def reference(self, query: Queries, keys: int) -> Float[Tensor, "batch heads queries keys"]:
        """Σ_c max(q_ic, 0) B_cj + b_j, and 0 for the last position, in float64."""
        hidden, weight, bias = query.double().clamp_min(0), self.weight.double(), self.bias.double()
        scores = torch.zeros(*query.shape[:3], keys, dtype=torch.float64)
        for j in range(min(keys, len(bias))):
            scores[..., j] = (hidden * weight[:, j]).sum(-1) + bias[j]
        return scores


class RandomScores(Synthesized):
    """A trained matrix for each head, drawn from N(0, 1); no input changes it (eq. 7)."""

    def __init__(self, *, heads: int, length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(heads, length, length))

    def scores(
        self, query: Queries, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Weights:
        """Return the scores of the queries and keys at these positions."""
        found = self.table[:, query_positions][..., key_positions].movedim(0, -3).to(query.dtype)
        return found.expand(len(query), -1, -1, -1)

    def reference(self, query: Queries, keys: int) -> Float[Tensor, "batch heads queries keys"]:
        """R_hij, in float64."""
        table = self.table.double()[:, : query.shape[2], :keys]
        return table.expand(len(query), -1, -1, -1)


class Synthesizer(ScoreAttention):
    """softmax(s)·V with scores s that are learned; there are no keys.

    Each position of a row has its own column, so that documents can't be packed.

    >>> from regard.attention.synthesizer import DenseScores
    >>> query, value = torch.randn(2, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> key = torch.empty(1, 2, 5, 0)  # only its shape counts
    >>> Synthesizer(DenseScores(d=8, length=64), length=64)(query, key, value).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "synthesizer"
    supports = SynthesizerConfig.supports
    learned: DenseScores | RandomScores

    def __init__(
        self, learned: DenseScores | RandomScores, *, length: int, dropout: float = 0.0
    ) -> None:
        """For texts of up to `length` tokens."""
        super().__init__(scaled=False, dropout=dropout)
        self.learned, self.length = learned, length

    def normalize_scores(self, scores: Weights, allowed: Tensor | None) -> Weights:
        return softmax(scores, allowed)

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """exp(s_ij) / Σ_l exp(s_il) over the allowed keys; s as the scores define it."""
        scores = self.learned.reference(query, key.shape[2])
        return reference.normalized(scores.exp(), reference.allowed(query, key, mask))

    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor:
        self._require_fit(key.shape[2])
        return super()._forward(query, key, value, mask, self.learned)

    def _masked_scores(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None, gates: Gates
    ) -> tuple[Tensor, Tensor | None]:
        self._require_fit(key.shape[2])
        at = (mask or Mask()).query_positions(query.shape[2], key.shape[2], query.device)
        places = torch.arange(key.shape[2], device=query.device)
        scores = self.learned.scores(at_least_float32(query), at, places)
        return scores, self.allowed(mask, query, key)

    def _init_state(self, shape: StateShape) -> State:
        self._require_fit(shape.capacity)
        return super()._init_state(shape)

    def _attend_cache(
        self, query: Tensor, cache: KeyValueCache, before: KeyValueCache, bias: AnyBias | None
    ) -> Tensor:
        return super()._attend_cache(query, cache, before, self.learned)

    def _scores(self, query: Tensor, key: Tensor, added: PositionedBias | None) -> Tensor:
        assert added is not None
        return added.scores(query)

    def _require_fit(self, tokens: int) -> None:
        if tokens > self.length:
            raise ValueError(
                f"this synthesizer is for {self.length} tokens at most, not {tokens}; "
                "a larger context_length makes a larger one"
            )

    def cost(self, shape: Shape) -> Cost:
        made = shape.queries * shape.keys * shape.d if isinstance(self.learned, DenseScores) else 0
        products = shape.batch * shape.heads * (made + shape.pairs * shape.e)
        parameters, size = sum(x.numel() for x in self.parameters()), shape.dtype.itemsize
        return Cost(
            operations=2 * products * shape.passes,
            bytes=shape.bytes_in_and_out + parameters * size * shape.passes,
            parameters=parameters,
            state_bytes=shape.cache_bytes,  # the keys that layers pass have width 0
        )
