"""The interface of every attention mechanism: public methods validate, private ones compute."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.cost import Cost, Shape
from regard.attention.mask import Mask
from regard.errors import UnsupportedError

ScoreMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(score, row, head, query index, key index) → score, as in FlexAttention."""

Queries: TypeAlias = Float[Tensor, "batch heads queries d"]
Keys: TypeAlias = Float[Tensor, "batch kv_heads keys d"]
Values: TypeAlias = Float[Tensor, "batch kv_heads keys e"]
Outputs: TypeAlias = Float[Tensor, "batch heads queries e"]
DenseBias: TypeAlias = Float[Tensor, "heads queries keys"]
"""A bias for the positions of one call, as references take it."""
AddedScores: TypeAlias = Float[Tensor, "*rows heads queries keys"]
"""A bias for positions, the same in all rows or one row of them each."""
Weights: TypeAlias = Float[Tensor, "batch heads queries keys"]
QueryPositions: TypeAlias = Int[Tensor, "*rows queries"]
"""Positions of the queries, the same in all rows or one row of them each."""
KeyPositions: TypeAlias = Int[Tensor, " keys"]


def at_least_float32(x: Tensor) -> Tensor:
    """Return a tensor in float32, or in float64 if it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@runtime_checkable
class Bias(Protocol):
    """A number added to the score of each query and key, by head and positions."""

    def dense(self, query_positions: QueryPositions, key_positions: KeyPositions) -> AddedScores:
        """The bias as a tensor."""

    def score_mod(self) -> ScoreMod:
        """(score, row, head, query position, key position) → the score with the bias.

        For indices of any shape, or one by one in FlexAttention.
        """


@runtime_checkable
class RelativeVectors(Protocol):
    """Vectors added to keys and values by their position relative to the query."""

    def scores(
        self, query: Queries, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Weights:
        """Products of each query with the vectors added to the keys."""

    def gather(
        self, weights: Weights, query_positions: QueryPositions, key_positions: KeyPositions
    ) -> Outputs:
        """Weighted sums of the vectors added to the values."""


AnyBias: TypeAlias = Bias | RelativeVectors


class State(Protocol):
    """Decoding state of a mechanism: tensors of fixed shape, and numbers."""

    @property
    def length(self) -> Int[Tensor, " batch"]:
        """Number of tokens so far, per row."""

    @property
    def bytes(self) -> int:
        """Size of all tensors."""

    def reorder(self, rows: Int[Tensor, " rows"]) -> "State":
        """Return the state of the given rows, in that order; a row may occur several times.

        The old state is invalid afterwards.
        """


@dataclass(frozen=True, eq=False)
class RowState:
    """Base of states whose fields are tensors of a row each, other states, or sequences of them.

    Other fields count no bytes; a state that has some reorders itself.
    """

    @property
    def bytes(self) -> int:
        """Size of all tensors."""
        return _bytes(list(vars(self).values()))

    def reorder(self, rows: Int[Tensor, " rows"]) -> Self:
        """Return the state of the given rows, in that order; a row may occur several times."""
        return replace(self, **{name: _select(x, rows) for name, x in vars(self).items()})


def _bytes(x: Any) -> int:
    if isinstance(x, Sequence):
        return sum(map(_bytes, x))
    size: int = x.nbytes if isinstance(x, Tensor) else getattr(x, "bytes", 0)
    return size


def _select(x: Any, rows: Int[Tensor, " rows"]) -> Any:
    if isinstance(x, Sequence):
        return [_select(one, rows) for one in x]
    if x is None or isinstance(x, Tensor):
        return x if x is None else x[rows]
    return x.reorder(rows)


@dataclass(frozen=True)
class StateShape:
    """The sizes of a decoding state."""

    batch: int
    kv_heads: int
    d: int
    """Width of a query and of a key."""
    e: int
    """Width of a value."""
    capacity: int
    """Largest number of tokens."""
    device: torch.device
    dtype: torch.dtype
    window_size: int | None = None
    """Farthest token that a query attends to, in positions; see `Mask`."""


@dataclass(frozen=True, kw_only=True)
class Support:
    """Features that a mechanism supports. Using any other raises `UnsupportedError`."""

    masks: frozenset[str] = frozenset()
    """Supported fields of `Mask`."""
    bias: bool = False
    """Whether a number can be added to each score."""
    vectors: bool = False
    """Whether vectors can be added to keys and values by relative position."""
    dropout: bool = False
    """Whether weights can be dropped in training."""
    cross: bool = False
    """Whether cross-attention is supported."""
    decoding: bool = False
    """Whether token-by-token decoding is supported."""
    differentiable: bool = True
    """Whether the gradient is that of the output, not a surrogate."""

    def has(self, feature: str) -> bool:
        """Whether a field of `Mask`, or a field here, is supported."""
        return feature in self.masks or bool(getattr(self, feature, False))


class Attention(nn.Module, ABC):
    """An attention mechanism: weighted sums of values for queries.

    It owns the parameters of the mechanism, never the projections to queries, keys and values.
    Fewer key/value heads than query heads are allowed: consecutive query heads share one.
    Query i has position i, or i + keys - queries where the mask is aligned at the "end".

    A mechanism defines `_forward`, `_weights` and `cost`; `_init_state` and `_extend` if it
    supports decoding; `_encode_memory` and `_attend_memory` if it supports cross-attention. Their
    inputs are validated. A method `reference(query, key, mask, bias)`, if it has one, makes the
    matrix of `weights` in float64, straight from the formula; `bias` is a tensor there.
    """

    name: ClassVar[str]
    supports: ClassVar[Support]

    def forward(
        self,
        query: Queries,
        key: Keys,
        value: Values,
        *,
        mask: Mask | None = None,
        bias: AnyBias | None = None,
    ) -> Outputs:
        """Return what each query gathers; zero for a query that may look at no key.

        Raises:
            UnsupportedError: names the mechanism, the feature, and the mechanisms supporting it.
            ValueError: the shapes don't fit one another.
            TypeError: the bias is neither kind.
        """
        self._validate(query, key, mask, bias)
        return self._forward(query, key, value, mask, bias)

    def weights(
        self, query: Queries, key: Keys, *, mask: Mask | None = None, bias: AnyBias | None = None
    ) -> Weights:
        """Return the matrix that `forward` applies to the values in evaluation mode."""
        self._validate(query, key, mask, bias)
        return self._weights(query, key, mask, bias)

    def init_state(
        self,
        batch: int,
        kv_heads: int,
        d: int,
        e: int,
        *,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
        window_size: int | None = None,
    ) -> State:
        """Return the state before the first of at most `capacity` tokens.

        With `window_size`, queries attend no farther back.
        """
        self.require_support("decoding", *(() if window_size is None else ("window_size",)))
        shape = StateShape(batch, kv_heads, d, e, capacity, device, dtype, window_size)
        return self._init_state(shape)

    def extend(
        self,
        query: Float[Tensor, "batch heads new d"],
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        state: State,
        *,
        attention_mask: Bool[Tensor, "batch new"] | None = None,
        bias: AnyBias | None = None,
    ) -> tuple[Float[Tensor, "batch heads new e"], State]:
        """Causal attention of new tokens to themselves and to all that the state has seen.

        `attention_mask` is True for real new tokens, which come first in their row; the output of
        the others is undefined. The given state is used up: continue with the returned one.
        """
        self.require_support("decoding")
        self._validate(query, key, None, bias)
        return self._extend(query, key, value, state, attention_mask, bias)

    def encode_memory(self, key: Keys, value: Values, *, mask: Mask | None = None) -> State:
        """Encode another sequence for cross-attention by many queries.

        `mask` may hold nothing but lengths.
        """
        self.require_support("cross")
        for field in sorted((mask.restrictions if mask else frozenset()) - {"key_lengths"}):
            raise ValueError(f"the memory of {self.name} attention takes lengths, not {field}")
        lengths = mask.key_lengths if mask else None
        if lengths is None:
            lengths = torch.full((len(key),), key.shape[2], device=key.device)
        return self._encode_memory(key, value, lengths)

    def attend_memory(self, query: Queries, memory: State) -> Outputs:
        """Return what queries gather from a memory: the second half of `forward`."""
        self.require_support("cross")
        return self._attend_memory(query, memory)

    @abstractmethod
    def cost(self, shape: Shape) -> Cost:
        """Count what a call of this shape needs."""

    @abstractmethod
    def _forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor: ...

    @abstractmethod
    def _weights(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> Tensor: ...

    def _init_state(self, shape: StateShape) -> State:
        raise NotImplementedError

    def _extend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        state: State,
        attention_mask: Tensor | None,
        bias: AnyBias | None,
    ) -> tuple[Tensor, State]:
        raise NotImplementedError

    def _encode_memory(self, key: Tensor, value: Tensor, lengths: Tensor) -> State:
        raise NotImplementedError

    def _attend_memory(self, query: Tensor, memory: State) -> Tensor:
        raise NotImplementedError

    def _validate(
        self, query: Tensor, key: Tensor, mask: Mask | None, bias: AnyBias | None
    ) -> None:
        """Raise unless this mechanism supports the inputs, and they fit one another."""
        if query.shape[0] != key.shape[0] or query.shape[1] % key.shape[1]:
            raise ValueError(
                f"queries {tuple(query.shape)} don't fit keys {tuple(key.shape)}: one batch size, "
                "and a number of query heads that the key heads divide"
            )
        self.require_support(*sorted(mask.restrictions if mask else ()))
        if mask:
            mask.require_fit(query.shape[2], key.shape[2])
        if isinstance(bias, RelativeVectors):
            self.require_support("vectors")
        elif bias is not None:
            self.require_support("bias")
            if not isinstance(bias, Bias):
                raise TypeError(f"{type(bias).__name__} is no bias: it needs dense and score_mod")
        if query.shape[2] != key.shape[2]:
            self.require_support("cross")

    def require_support(self, *features: str) -> None:
        """Raise unless every feature (a field of `Mask` or `Support`) is supported.

        Raises:
            UnsupportedError: names the mechanism, the feature, and the mechanisms supporting it.
        """
        for feature in features:
            if not self.supports.has(feature):
                raise self.unsupported(feature)

    def unsupported(self, feature: str) -> UnsupportedError:
        """The error for a feature (a field of `Mask` or `Support`) that is not supported."""
        from regard.attention.registry import supporting

        others = ", ".join(supporting(feature))
        return UnsupportedError(
            f"{self.name} attention does not support {_FEATURES[feature]}; supported by: {others}"
        )


_FEATURES = {
    "alignment": "causal masks",
    "window_size": "window masks",
    "key_lengths": "padding masks",
    "document_ids": "document masks",
    "blocks": "block masks",
    "allowed": "arbitrary masks",
    "bias": "a bias added to scores",
    "vectors": "relative-position vectors",
    "dropout": "dropout of weights",
    "cross": "cross-attention",
    "decoding": "token-by-token decoding",
}
"""Each field of `Mask` and `Support`, as an error names it."""
