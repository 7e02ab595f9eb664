"""Generation: how tokens are chosen, and the loop that chooses them."""

from regard.decoding.generate import Generated, generate
from regard.decoding.sampling import Sampling

__all__ = ["Generated", "Sampling", "generate"]
