"""Cost of attention, computed from shapes."""

from dataclasses import dataclass
from typing import Literal

import torch

Mode = Literal["forward", "training", "step"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of one call of an attention mechanism."""

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
    """Whether query i looks no further than key i + keys - queries."""
    mode: Mode = "forward"
    """Forward; with backward; or decoding: `queries` new tokens, `keys` with those before."""

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it may attend to, per head."""
        if not self.causal:
            return self.queries * self.keys
        looking = min(self.queries, self.keys)
        return looking * self.keys - looking * (looking - 1) // 2

    @property
    def passes(self) -> int:
        """Matrix products done for each one of the forward pass: its backward has two."""
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
    """Least cost of a call with the algorithm of the mechanism."""

    operations: int
    """Floating-point operations of its matrix products, two for a multiplication and addition."""
    bytes: int
    """Bytes read and written if everything that fits stays on the chip: inputs, outputs, state."""
    parameters: int
    """Trained numbers."""
    state_bytes: int
    """Bytes that decoding remembers of `keys` tokens; 0 for what can't decode."""

    @property
    def intensity(self) -> float:
        """Operations a byte: below what the machine does in the time of a byte, memory decides."""
        return self.operations / self.bytes
