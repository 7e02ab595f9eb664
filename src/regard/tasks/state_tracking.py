"""Probes of state tracking: parity, and products of permutations."""

from itertools import permutations
from math import factorial
from typing import Annotated

import numpy as np
from msgspec import Meta

from regard.config import LONGEST
from regard.data import IGNORE
from regard.tasks.probe import Ids, LabeledRows, Probe


class ParityConfig(Probe, frozen=True, tag_field="kind", tag="parity"):
    """Bits → parity of the number of ones so far, tested on longer rows.

    The strings of the parity check of Delétang et al. (2023, arXiv:2207.02098;
    google-deepmind/neural_networks_chomsky_hierarchy, tasks/regular/parity_check.py), who ask for
    the parity at the end of a string of a random length. Here, the label at each position is the
    parity of the prefix that ends there.
    """

    length: Annotated[int, Meta(ge=1, le=LONGEST)] = 40
    """Bits per row of training."""
    test_length: Annotated[int, Meta(ge=2, le=LONGEST)] = 256
    """Bits per test row; positions after `length` are scored."""

    def __post_init__(self) -> None:
        if self.test_length <= self.length:
            raise ValueError(
                f"test_length = {self.test_length} leaves no position after those of training: "
                f"choose more than length = {self.length}"
            )

    @property
    def vocabulary(self) -> int:
        """Number of ids: the bits."""
        return 2

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of `length` uniform bits; each label is the parity of the prefix."""
        return _parities(rng.integers(2, size=(rows, self.length)))

    def draw_test(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of `test_length` bits, with labels after the first `length` positions."""
        ids, labels = _parities(rng.integers(2, size=(rows, self.test_length)))
        labels[:, : self.length] = IGNORE
        return LabeledRows(ids, labels)


class StateTrackingConfig(Probe, frozen=True, tag_field="kind", tag="state-tracking"):
    """Permutations → their product so far.

    The word problem of a symmetric group (Merrill et al., 2024, arXiv:2404.08819; jopetty/
    word-problem, src/generate_data.py). An id is the place of its permutation in lexicographic
    order, so that 0 is the identity. A product applies its last factor first: (a·b)(i) = a(b(i)).
    """

    items: Annotated[int, Meta(ge=2, le=5)] = 5
    """Number of permuted items; 5 is the smallest number whose word problem is NC¹-complete."""
    length: Annotated[int, Meta(ge=1, le=LONGEST)] = 32
    """Permutations per row."""

    @property
    def vocabulary(self) -> int:
        """Number of ids: the permutations."""
        return factorial(self.items)

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of uniform permutations; each label is the product of the prefix."""
        table = _products(self.items)
        ids = rng.integers(len(table), size=(rows, self.length))
        labels = ids.copy()
        for i in range(1, self.length):
            labels[:, i] = table[labels[:, i - 1], ids[:, i]]
        return LabeledRows(ids, labels)


def _parities(bits: Ids) -> LabeledRows:
    return LabeledRows(bits, np.cumsum(bits, axis=1) % 2)


def _products(items: int) -> Ids:
    """Return the index of the product of each two permutations."""
    elements = np.array(list(permutations(range(items))))
    products = elements[:, elements]  # [a, b, i] = a(b(i))
    place_values = items ** np.arange(items)[::-1]
    return np.searchsorted(elements @ place_values, products @ place_values)
