"""Generation: how tokens are chosen, and the loops that choose them."""

from regard.decoding.beam_search import Beam, EarlyStopping, beam_search
from regard.decoding.generate import Generated, Sampling, generate, stream

__all__ = ["Beam", "EarlyStopping", "Generated", "Sampling", "beam_search", "generate", "stream"]
