"""Shapes that bodies, layers and heads share.

b rows, n tokens, m tokens of a source, d the width of hidden states.
"""

from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

TokenIds: TypeAlias = Int[Tensor, "b n"]
SourceIds: TypeAlias = Int[Tensor, "b m"]
Hidden: TypeAlias = Float[Tensor, "b n d"]
"""Hidden states of tokens."""
Lengths: TypeAlias = Int[Tensor, " b"]
"""Number of tokens of each row, without padding."""
TokenMask: TypeAlias = Bool[Tensor, "b n"]
"""True for real new tokens, which come first in their row."""
