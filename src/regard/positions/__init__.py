"""Where a token stands: added to the input, or turned into queries and keys."""

from regard.positions.absolute import Learned
from regard.positions.rotary import Rotary, rotate

__all__ = ["Learned", "Rotary", "rotate"]
