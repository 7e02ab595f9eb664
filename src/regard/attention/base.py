"""The contract that every attention mechanism keeps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.cost import Cost, Shape
from regard.attention.mask import Mask
from regard.errors import UnsupportedError

ScoreMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@runtime_checkable
class Bias(Protocol):
    """A number added to the score of each query and key, by head and positions."""

    def dense(
        self, query_positions: Int[Tensor, "*rows queries"], key_positions: Int[Tensor, " keys"]
    ) -> Float[Tensor, "*rows heads queries keys"]:
        """The bias as a tensor."""
        ...

    def score_mod(self) -> ScoreMod:
        """(score, row, head, query position, key position) → the score with the bias.

        For indices of any shape, or one by one in FlexAttention.
        """
        ...


@runtime_checkable
class RelativeVectors(Protocol):
    """Vectors added to keys and values by their position relative to the query."""

    def scores(
        self,
        query: Float[Tensor, "batch heads queries d"],
        query_positions: Int[Tensor, "*rows queries"],
        key_positions: Int[Tensor, " keys"],
    ) -> Float[Tensor, "batch heads queries keys"]:
        """Products of each query with the vectors added to the keys."""
        ...

    def gather(
        self,
        weights: Float[Tensor, "batch heads queries keys"],
        query_positions: Int[Tensor, "*rows queries"],
        key_positions: Int[Tensor, " keys"],
    ) -> Float[Tensor, "batch heads queries e"]:
        """What the weights gather of the vectors added to the values."""
        ...


class State(Protocol):
    """What a mechanism remembers of the tokens seen: tensors of fixed shape, and numbers."""

    @property
    def length(self) -> Int[Tensor, " batch"]:
        """How many tokens each row has seen."""
        ...

    @property
    def bytes(self) -> int:
        """Size of all its tensors."""
        ...

    def select(self, rows: Int[Tensor, " rows"]) -> "State":
        """The state of the given rows, in that order; a row may be taken several times.

        The given state is used up: go on with the one that is returned.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Support:
    """What a mechanism can do. Whatever it can't, it refuses."""

    masks: frozenset[str] = frozenset()
    """The fields of `Mask` that it honours."""
    bias: bool = False
    """Whether a number can be added to each score."""
    vectors: bool = False
    """Whether vectors can be added to keys and values by relative position."""
    dropout: bool = False
    """Whether weights can be dropped in training."""
    cross: bool = False
    """Whether queries may look at another sequence."""
    decoding: bool = False
    """Whether it can go on token by token."""
    differentiable: bool = True
    """Whether its gradient is that of its output, and not a stand-in."""

    def has(self, ability: str) -> bool:
        """Whether it can do what a field of `Mask`, or a field here, is the name of."""
        return ability in self.masks or bool(getattr(self, ability, False))


class Attention(nn.Module, ABC):
    """A way for queries to gather values by keys.

    It owns what the mechanism itself needs, never the projections to queries, keys and values.
    Fewer key/value heads than query heads are allowed: consecutive query heads share one.
    Query i has position i, or i + keys - queries where the mask is aligned at the "end".
    """

    name: ClassVar[str]
    supports: ClassVar[Support]

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        value: Float[Tensor, "batch kv_heads keys e"],
        *,
        mask: Mask | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> Float[Tensor, "batch heads queries e"]:
        """What each query gathers. A query that may look at no key gathers zero."""

    @abstractmethod
    def weights(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        *,
        mask: Mask | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The matrix that `forward` applies to the values in evaluation mode."""

    @abstractmethod
    def cost(self, shape: Shape) -> Cost:
        """What a call of this shape needs."""

    def start(
        self,
        batch: int,
        kv_heads: int,
        d: int,
        e: int,
        *,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> State:
        """The state before the first of at most `capacity` tokens."""
        raise self.refusal("decoding")

    def extend(
        self,
        query: Float[Tensor, "batch heads new d"],
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        state: State,
        *,
        keep: Bool[Tensor, "batch new"] | None = None,
        bias: Bias | RelativeVectors | None = None,
    ) -> tuple[Float[Tensor, "batch heads new e"], State]:
        """Causal attention of new tokens to themselves and to all that the state has seen.

        `keep` says which new tokens are real; they come first in their row, and what the others
        gather means nothing. The given state is used up: go on with the one that is returned.
        """
        raise self.refusal("decoding")

    def memory(
        self,
        key: Float[Tensor, "batch kv_heads keys d"],
        value: Float[Tensor, "batch kv_heads keys e"],
        *,
        mask: Mask | None = None,
    ) -> State:
        """Another sequence as cross-attention reads it, kept for many queries.

        `mask` may hold nothing but lengths.
        """
        raise self.refusal("cross")

    def read(
        self, query: Float[Tensor, "batch heads queries d"], memory: State
    ) -> Float[Tensor, "batch heads queries e"]:
        """What queries gather from a memory: `forward` without its first half."""
        raise self.refusal("cross")

    def require(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        mask: Mask | None,
        bias: Bias | RelativeVectors | None,
    ) -> None:
        """Refuse what this mechanism can't do.

        Raises:
            UnsupportedError: names the mechanism, the wish, and the mechanisms that can.
            ValueError: the shapes don't fit one another.
            TypeError: the bias is neither kind.
        """
        if query.shape[0] != key.shape[0] or query.shape[1] % key.shape[1]:
            raise ValueError(
                f"queries {tuple(query.shape)} don't fit keys {tuple(key.shape)}: one batch size, "
                "and a number of query heads that the key heads divide"
            )
        self.require_abilities(*sorted(mask.restrictions if mask else ()))
        ids = mask.document_ids if mask else None
        if ids is not None and not ids.shape[1] == query.shape[2] == key.shape[2]:
            raise ValueError(
                f"document ids of {ids.shape[1]} positions don't fit {query.shape[2]} queries and "
                f"{key.shape[2]} keys; they are for self-attention"
            )
        if isinstance(bias, RelativeVectors):
            self.require_abilities("vectors")
        elif bias is not None:
            self.require_abilities("bias")
            if not isinstance(bias, Bias):
                raise TypeError(f"{type(bias).__name__} is no bias: it needs dense and score_mod")
        if query.shape[2] != key.shape[2]:
            self.require_abilities("cross")

    def require_abilities(self, *abilities: str) -> None:
        """Refuse a place that takes abilities (fields of `Mask` or of `Support`) it doesn't have.

        Raises:
            UnsupportedError: names the mechanism, the wish, and the mechanisms that can.
        """
        for ability in abilities:
            if not self.supports.has(ability):
                raise self.refusal(ability)

    def refusal(self, ability: str) -> UnsupportedError:
        """The error for a wish that takes an ability (a mask's field or one of `Support`)."""
        from regard.attention.registry import able

        wish, others = _WISHES[ability], ", ".join(able(ability))
        return UnsupportedError(f"{self.name} attention can't {wish}; these can: {others}")


_WISHES = {
    "alignment": "be causal",
    "window_size": "keep to a window",
    "key_lengths": "leave out padding",
    "document_ids": "keep documents apart",
    "blocks": "keep to a mask of blocks",
    "allowed": "honour any mask, pair by pair",
    "bias": "add a bias to its scores",
    "vectors": "add vectors to its keys and values",
    "dropout": "drop weights",
    "cross": "look at another sequence",
    "decoding": "decode token by token",
}
"""What each ability is for, as an error says it."""
