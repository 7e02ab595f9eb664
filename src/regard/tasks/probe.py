"""Base of probes: rows of ids with a label to predict at each position."""

from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Int

from regard.config import Config
from regard.data import IGNORE

Ids: TypeAlias = Int[np.ndarray, "rows length"]
Mask: TypeAlias = Bool[np.ndarray, "rows length"]


class LabeledRows(NamedTuple):
    """Rows of equal length: label i is the target at position i, IGNORE if there is none."""

    ids: Ids
    labels: Ids


class Probe(Config, frozen=True):
    """Base of probes; each has a `vocabulary`, the number of its ids."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return training rows, drawn independently."""
        raise NotImplementedError

    def draw_test(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return test rows, by default drawn as in training."""
        return self.draw(rng, rows)


class NextIdProbe(Probe, frozen=True):
    """Base of probes that are trained on all next ids, and tested on those that a rule decides."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows whose labels are the next ids."""
        ids, _ = self._rows(rng, rows)
        return LabeledRows(ids[:, :-1], ids[:, 1:])

    def draw_test(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows with labels only where the rule decides the next id."""
        return next_ids_where(*self._rows(rng, rows))

    def _rows(self, rng: np.random.Generator, rows: int) -> tuple[Ids, Mask]:
        """Return rows, one id longer than the model's, and which ids are tested."""
        raise NotImplementedError


def next_ids_where(rows: Ids, asked: Mask) -> LabeledRows:
    """Return rows without their last ids; labels are next ids where `asked`, else IGNORE."""
    return LabeledRows(rows[:, :-1], np.where(asked, rows, IGNORE)[:, 1:])


def require_even(length: int) -> None:
    """Check that a length is even, for rows of pairs.

    Raises:
        ValueError: the length is odd.
    """
    if length % 2:
        raise ValueError(f"length = {length} is odd: choose an even number")
