"""Generation: how tokens are chosen, and the loops that choose them."""

from regard.decoding.beam_search import Beam, EarlyStopping, beam_search, search_ids
from regard.decoding.generate import Generated, generate, generate_ids, stream
from regard.decoding.sampling import Sampling

__all__ = [
    "Beam",
    "EarlyStopping",
    "Generated",
    "Sampling",
    "beam_search",
    "generate",
    "generate_ids",
    "search_ids",
    "stream",
]
