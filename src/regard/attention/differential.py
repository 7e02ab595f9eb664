"""Differential attention: the difference of two maps of softmax attention over the same values."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import reference
from regard.attention.base import Attention, as_dtype
from regard.attention.cost import Cost, Shape
from regard.attention.gates import Gate
from regard.attention.mask import Mask
from regard.attention.score_config import DifferentialConfig
from regard.attention.softmax import Softmax
from regard.attention.state import State, StateShape, last_by_head
from regard.attention.types import (
    AddedScores,
    AnyBias,
    Bias,
    DenseBias,
    KeyPositions,
    Keys,
    Queries,
    QueryPositions,
    ScoreMod,
    Weights,
)

Maps: TypeAlias = Float[Tensor, "batch 2*heads queries width"]
"""Queries, weights or outputs of both maps of each head, one after the other."""


@dataclass(frozen=True)
class BothMaps(Bias):
    """The bias of a head, for both of its maps."""

    bias: Bias

    def dense(self, query_positions: QueryPositions, key_positions: KeyPositions) -> AddedScores:
        numbers = self.bias.dense(query_positions, key_positions)
        return numbers.repeat_interleave(2, -3)

    def score_mod(self) -> ScoreMod:
        add = self.bias.score_mod()

        def add_by_head(
            score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor
        ) -> Tensor:
            return add(score, row, head // 2, query, key)

        return add_by_head


class MapDifference(Attention):
    """A₁ − λ A₂ applied to the values, for two maps of softmax attention."""

    def __init__(self, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.maps = Softmax(dropout=dropout)

    def queries(self, query: Queries) -> Maps:
        """Return the queries of both maps."""
        return query

    @abstractmethod
    def _lambda(self, dtype: torch.dtype, **gates: Tensor) -> Float[Tensor, "*batch_heads_tokens"]:
        """Return λ, which broadcasts to outputs and weights."""

    def _difference(self, both: Maps, **gates: Tensor) -> Tensor:
        b, heads, n, e = both.shape
        first, second = both.view(b, heads // 2, 2, n, e).unbind(2)
        return torch.addcmul(first, self._lambda(both.dtype, **gates), second, value=-1)

    def _forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        bias: AnyBias | None,
        **gates: Tensor,
    ) -> Tensor:
        queries = self.queries(query)
        mask = mask and mask.repeat_heads(2)
        both = self.maps(queries, key, value, mask=mask, bias=_of_both(bias))
        return self._difference(both, **gates)

    def _weights(
        self,
        query: Tensor,
        key: Tensor,
        mask: Mask | None,
        bias: AnyBias | None,
        **gates: Tensor,
    ) -> Tensor:
        queries = self.queries(query)
        mask = mask and mask.repeat_heads(2)
        both = self.maps.weights(queries, key, mask=mask, bias=_of_both(bias))
        return self._difference(both, **gates)

    def _init_state(self, shape: StateShape) -> State:
        return self.maps.init_state(**vars(shape))

    def _extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
        **gates: Tensor,
    ) -> tuple[Tensor, State]:
        queries = self.queries(query)
        both, state = self.maps._extend(queries, key, value, state, attention_mask, _of_both(bias))
        return self._difference(both, **gates), state

    def _extend_last(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
        **gates: Tensor,
    ) -> tuple[Tensor, State]:
        queries = self.queries(query)
        both, state = self.maps._extend_last(
            queries, key, value, state, attention_mask, _of_both(bias)
        )
        last = {name: last_by_head(gate, attention_mask) for name, gate in gates.items()}
        return self._difference(both, **last), state

    def cost(self, shape: Shape) -> Cost:
        found = self.maps.cost(shape)
        return replace(
            found,
            operations=2 * found.operations,
            parameters=sum(parameter.numel() for parameter in self.parameters()),
        )


class Differential(MapDifference):
    """A₁ − λ A₂: both maps read the same keys with different queries; λ_t = σ(w·x_t) by head.

    Two consecutive query heads are those of the maps of one head.

    Ye et al., 2026, "Differential Transformer V2" (https://huggingface.co/blog/microsoft/diff-attn-v2).

    >>> query, key = torch.zeros(1, 2, 2, 8), torch.zeros(1, 1, 2, 8)  # equal tokens
    >>> gates = {"share": torch.full((1, 1, 2), 0.5)}
    >>> Differential().weights(query, key, mask=Mask.causal(), gates=gates)[0, 0]
    tensor([[0.5000, 0.0000],
            [0.2500, 0.2500]])
    """

    name = "differential"
    supports = DifferentialConfig.supports
    queries_per_head = 2
    gates = (Gate("share", of="query", at="query"),)

    def reference(
        self,
        query: Queries,
        key: Keys,
        mask: Mask,
        bias: DenseBias | None,
        *,
        share: Tensor,
    ) -> Weights:
        """softmax(q_i·k_j/√d + b_ij) − λ_i softmax(q'_i·k_j/√d + b_ij)."""
        maps = query[:, 0::2], query[:, 1::2]
        allowed = reference.allowed(maps[0], key, mask)
        first, second = (reference.softmax(one, key, allowed, bias) for one in maps)
        return first - share.double()[..., None] * second

    def _lambda(self, dtype: torch.dtype, **gates: Tensor) -> Tensor:
        return as_dtype(gates["share"].unsqueeze(-1), dtype)

    def cost(self, shape: Shape) -> Cost:
        found = super().cost(shape)
        numbers = shape.batch * shape.heads * shape.queries * (shape.d + 1)
        return replace(found, bytes=found.bytes + numbers * shape.dtype.itemsize * shape.passes)


class DifferentialV1(MapDifference):
    """A₁ − λ A₂, each map with its half of the queries and keys (Ye et al., 2024, eq. 1 and 2).

    λ = exp(λ_q1·λ_k1) − exp(λ_q2·λ_k2) + λ_init, the same for all heads and tokens.

    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> DifferentialV1(d=8, lambda_init=0.8)(query, key, value).shape
    torch.Size([1, 2, 5, 8])
    """

    name = "differential"
    supports = DifferentialConfig.supports

    def __init__(self, *, d: int, lambda_init: float, **options: Any) -> None:
        """`d` is the width of a head, an even number."""
        super().__init__(**options)
        self.lambda_init = lambda_init
        self.lambda_query, self.lambda_key = (
            nn.Parameter(torch.empty(2, d // 2).normal_(std=0.1)) for _ in range(2)
        )

    def reference(self, query: Queries, key: Keys, mask: Mask, bias: DenseBias | None) -> Weights:
        """softmax(q₁·k₁/√(d/2) + b) − λ softmax(q₂·k₂/√(d/2) + b)."""
        allowed, scale = reference.allowed(query, key, mask), 1 / math.sqrt(query.shape[-1] // 2)
        halves = zip(query.chunk(2, -1), key.chunk(2, -1), strict=True)
        first, second = (reference.softmax(q, k, allowed, bias, scale=scale) for q, k in halves)
        products = (self.lambda_query.double() * self.lambda_key.double()).sum(-1).exp()
        return first - (products[0] - products[1] + self.lambda_init) * second

    def queries(self, query: Queries) -> Maps:
        """Return each half beside zeros, so that keys and values keep one width for kernels."""
        first, second = (math.sqrt(2) * query).chunk(2, -1)
        none = torch.zeros_like(first)
        halves = torch.cat([first, none], -1), torch.cat([none, second], -1)
        return torch.stack(halves, 2).flatten(1, 2)

    def _lambda(self, dtype: torch.dtype, **_: Tensor) -> Tensor:
        wide = torch.promote_types(dtype, torch.float32)
        products = (self.lambda_query.to(wide) * self.lambda_key.to(wide)).sum(-1).exp()
        return (products[0] - products[1] + self.lambda_init).to(dtype)


def _of_both(bias: AnyBias | None) -> BothMaps | None:
    return None if bias is None else BothMaps(cast(Bias, bias))
