"""Generation: how tokens are chosen, and the loops that choose them."""

from regard.decoding.beam_search import Beam, EarlyStopping, beam_search
from regard.decoding.generate import Generated, generate, stream
from regard.decoding.sampling import Sampling

__all__ = ["Beam", "EarlyStopping", "Generated", "Sampling", "beam_search", "generate", "stream"]
