"""Cost of attention, computed from shapes."""

from dataclasses import dataclass
from typing import Literal

import torch

Mode = Literal["forward", "training", "step"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of one call of an attention mechanism.

    >>> shape = Shape(batch=1, heads=8, kv_heads=2, queries=9, keys=9, d=64, e=64, causal=True)
    >>> shape.pairs
    45
    """

    batch: int
    heads: int
    """Heads of the output."""
    kv_heads: int
    """Heads of the values."""
    queries: int
    keys: int
    d: int
    """Width of a query and of a key."""
    e: int
    """Width of a value."""
    dtype: torch.dtype = torch.float32
    causal: bool = False
    """Whether query i attends to keys up to i + keys - queries."""
    mode: Mode = "forward"
    """Forward; forward and backward; or a decoding step: `queries` new tokens of `keys` in all."""

    @property
    def pairs(self) -> int:
        """Number of pairs of a query and an allowed key, per head."""
        if not self.causal:
            return self.queries * self.keys
        attending = min(self.queries, self.keys)
        return attending * self.keys - attending * (attending - 1) // 2

    @property
    def passes(self) -> int:
        """Matrix products per product of the forward pass; the backward pass has two more."""
        return 3 if self.mode == "training" else 1

    @property
    def bytes_in_and_out(self) -> int:
        """Bytes of queries, keys, values and outputs; in training, those of their gradients too."""
        by_query = self.heads * self.queries * (self.d + self.e)
        by_key = self.kv_heads * self.keys * (self.d + self.e)
        return self.batch * (by_query + by_key) * self.dtype.itemsize * self.passes

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of all tokens."""
        return self.batch * self.kv_heads * self.keys * (self.d + self.e) * self.dtype.itemsize


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Minimum cost of a call with the algorithm of the mechanism.

    >>> shape = Shape(batch=1, heads=8, kv_heads=2, queries=1, keys=1000, d=64, e=64, mode="step")
    >>> cost = Softmax().cost(shape)
    >>> cost.operations, cost.state_bytes
    (2048000, 1024000)
    """

    operations: int
    """Floating-point operations of its matrix products, two per multiply-add."""
    bytes: int
    """Bytes read and written if everything that fits stays on the chip: inputs, outputs, state."""
    parameters: int
    """Number of trained parameters."""
    state_bytes: int
    """Bytes of the decoding state after `keys` tokens; 0 without decoding."""

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, in operations per byte; memory-bound if below the machine's."""
        return self.operations / self.bytes
