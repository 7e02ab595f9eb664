"""The contract that every attention mechanism keeps."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.mask import Mask
from regard.errors import UnsupportedError


class Bias(Protocol):
    """A number added to the score of each query and key, by head and positions."""

    def dense(
        self, query_positions: Int[Tensor, " queries"], key_positions: Int[Tensor, " keys"]
    ) -> Float[Tensor, "heads queries keys"]:
        """The bias as a tensor."""
        ...


class State(Protocol):
    """What a mechanism remembers of the tokens that it has seen: tensors of fixed shape."""

    @property
    def length(self) -> Int[Tensor, " batch"]:
        """How many tokens each row has seen."""
        ...

    def select(self, rows: Int[Tensor, " rows"]) -> "State":
        """The state of the given rows, in that order; a row may be taken several times."""
        ...


@dataclass(frozen=True, kw_only=True)
class Support:
    """What a mechanism can do. Whatever it can't, it refuses."""

    masks: frozenset[str]
    """The fields of `Mask` that it honours."""
    bias: bool
    dropout: bool
    decoding: bool


class Attention(nn.Module, ABC):
    """A way for queries to gather values by keys.

    It owns what the mechanism itself needs, never the projections to queries, keys and values.
    Fewer key/value heads than query heads are allowed: consecutive query heads share one.
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
        bias: Bias | None = None,
    ) -> Float[Tensor, "batch heads queries e"]:
        """What each query gathers. A query that may look at no key gathers zero."""

    @abstractmethod
    def weights(
        self,
        query: Float[Tensor, "batch heads queries d"],
        key: Float[Tensor, "batch kv_heads keys d"],
        *,
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The matrix that `forward` applies to the values in evaluation mode."""

    @abstractmethod
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

    @abstractmethod
    def extend(
        self,
        query: Float[Tensor, "batch heads new d"],
        key: Float[Tensor, "batch kv_heads new d"],
        value: Float[Tensor, "batch kv_heads new e"],
        state: State,
        *,
        keep: Bool[Tensor, "batch new"] | None = None,
    ) -> tuple[Float[Tensor, "batch heads new e"], State]:
        """Causal attention of new tokens to themselves and to all that the state has seen.

        `keep` says which new tokens are real; they come first in their row. The given state is
        used up: go on with the one that is returned.
        """

    def require(self, mask: Mask | None, bias: Bias | None) -> None:
        """Refuse what this mechanism can't do.

        Raises:
            UnsupportedError: names the mechanism and the wish.
        """
        unknown = sorted((mask.restrictions if mask else frozenset()) - self.supports.masks)
        if unknown:
            raise UnsupportedError(
                f"{self.name} attention can't honour a mask's {', '.join(unknown)}"
            )
        if bias is not None and not self.supports.bias:
            raise UnsupportedError(f"{self.name} attention has no scores to add a bias to")
