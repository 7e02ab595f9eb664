"""Where a token stands: on the input, on the scores, on keys and values, or turned into q and k."""

from regard.positions.absolute import Learned, OneHot, Sinusoidal, shift_matrix
from regard.positions.bias import Alibi, RelativeBias, T5Bias
from regard.positions.rotary import Rotary, rotate
from regard.positions.vectors import ShawVectors

__all__ = [
    "Alibi",
    "Learned",
    "OneHot",
    "RelativeBias",
    "Rotary",
    "ShawVectors",
    "Sinusoidal",
    "T5Bias",
    "rotate",
    "shift_matrix",
]
