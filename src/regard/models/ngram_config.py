"""Configuration of hashed embeddings of n-grams. Imports no torch."""

from math import gcd
from typing import Annotated

from msgspec import Meta

from regard.config import Config, Positive

GOLDEN = 0.6180339887498949
"""(√5 - 1) / 2, whose multiples are far apart modulo 1."""


class NgramConfig(Config, frozen=True):
    """Embeddings of n-grams, looked up by hash in tables and added to those of tokens."""

    longest: Annotated[int, Meta(ge=2, le=8)] = 3
    """Longest n-gram, in tokens: 3 has tables of bigrams and of trigrams."""
    slots: Positive = 65_536
    """Rows per table."""
    hashes: Annotated[int, Meta(ge=1, le=16)] = 2
    """Hash functions of an n-gram, each with a table of a part of the width; two n-grams have equal
    embeddings only if all hashes are equal."""

    def n_parameters(self, width: int) -> int:
        """Return the size of all tables."""
        return (self.longest - 1) * self.slots * width

    @property
    def multipliers(self) -> list[int]:
        """The base of each hash function, without a common divisor with `slots`."""
        starts = (int((k + 1) * GOLDEN % 1 * self.slots) for k in range(self.hashes))
        every = (range(start, start + self.slots) for start in starts)
        return [next(a % self.slots for a in some if gcd(a, self.slots) == 1) for some in every]

    def require_width(self, width: int) -> None:
        """Raise unless embeddings of this width can be divided among the tables of an n-gram.

        Raises:
            ValueError: `hashes` doesn't divide the width.
        """
        if width % self.hashes:
            raise ValueError(
                f"ngrams.hashes = {self.hashes} doesn't divide the width {width} of the "
                "embeddings: choose a divisor"
            )
