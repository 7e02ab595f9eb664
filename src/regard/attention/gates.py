"""Gates: inputs of a mechanism per token, in addition to queries, keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor

Gates: TypeAlias = Mapping[str, Float[Tensor, "batch heads tokens *channels"]]
"""The gates of a call, by name."""
NO_GATES: Gates = MappingProxyType({})


@dataclass(frozen=True)
class Gate:
    """Declaration of a gate of a mechanism.

    >>> query, key, value = torch.randn(3, 1, 2, 5, 8)  # batch, heads, tokens, width
    >>> Gate("log_decay", per="key", low=-20.0, high=0.0).shape(query, key, value)
    (1, 2, 5, 8)
    >>> [gate.name for gate in GatedDeltaNet.gates]
    ['log_decay', 'beta']
    """

    name: str
    per: Literal["head", "key", "value"] = "head"
    """One number per head, per channel of its keys, or per channel of its values."""
    low: float = 0.0
    high: float = 1.0
    """The range of its values."""
    of: Literal["query", "value"] = "value"
    """Whether each head of queries, or of values, has a gate."""
    heads: int | None = None
    """Number of heads, if it is that of neither queries nor values."""
    width: int | None = None
    """Number of channels, if it is that of neither keys nor values."""
    at: Literal["key", "query"] = "key"
    """Whether each key or each query has a gate."""

    def shape(
        self, query: Tensor, key: Tensor, value: Tensor, *, queries_per_head: int = 1
    ) -> tuple[int, ...]:
        """Return the shape for given queries, keys and values."""
        of_queries = query.size(1) // queries_per_head
        heads = self.heads or (of_queries if self.of == "query" else value.size(1))
        tokens = (query if self.at == "query" else value).size(2)
        if self.width is not None:
            return len(value), heads, tokens, self.width
        if self.per == "head":
            return len(value), heads, tokens
        return len(value), heads, tokens, (key if self.per == "key" else value).size(3)
