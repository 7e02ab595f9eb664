"""Probes with known circuits: repeated tokens, indirect objects, and copying on a trigger."""

from typing import Annotated

import numpy as np
from jaxtyping import Float
from msgspec import Meta

from regard.config import LONGEST, Positive, Seed
from regard.data import IGNORE
from regard.tasks.probe import Ids, LabeledRows, Mask, NextIdProbe, Probe, next_ids_where

BEGIN, ASK, FIRST_NAME = 0, 1, 2
"""Ids: the start of a row, the question for a name, and the first name."""


class RepeatedConfig(Probe, frozen=True, tag_field="kind", tag="repeated"):
    """A segment of uniform ids, repeated to the end of the row → the next ids of the repetitions.

    Repeated random tokens, as for the induction scores of Olsson et al. (2022, arXiv:2209.11895).
    The length of the segment is drawn for each row, so attention at a fixed distance fails.
    """

    vocabulary: Annotated[int, Meta(ge=2)] = 64
    """Number of ids."""
    length: Annotated[int, Meta(ge=4, le=LONGEST)] = 48
    """Ids per row, without the last one, which is only predicted."""
    shortest: Positive = 8
    """Smallest number of ids of a segment."""
    longest: Positive = 24
    """Largest number of ids of a segment."""

    def __post_init__(self) -> None:
        if not self.shortest <= self.longest < self.length:
            raise ValueError(
                f"shortest = {self.shortest} and longest = {self.longest}: segments of rows of "
                f"{self.length} ids have 1 to {self.length - 1} ids, and longest isn't less than "
                "shortest"
            )

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows with a label at each id from the second copy on."""
        sizes = rng.integers(self.shortest, self.longest, size=(rows, 1), endpoint=True)
        segments = rng.integers(self.vocabulary, size=(rows, self.longest))
        places = np.arange(self.length + 1)
        ids = np.take_along_axis(segments, places % sizes, axis=1)
        return next_ids_where(ids, places > sizes)


class IndirectObjectConfig(Probe, frozen=True, tag_field="kind", tag="indirect-object"):
    """Two names, then one of them again → the other name.

    Symbolic indirect-object identification (Adhikari, 2025, arXiv:2510.25013, after Wang et al.,
    2022, arXiv:2211.00593): 0, two names, the repeated one, 1.
    """

    vocabulary: Annotated[int, Meta(ge=4)] = 34
    """Number of ids; 0 begins a row, 1 asks for the name, the others are names."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows with a label at the last position."""
        n = self.vocabulary - FIRST_NAME
        first = rng.integers(n, size=rows)
        second = (first + rng.integers(1, n, size=rows)) % n
        is_first = rng.random(rows) < 0.5
        again, other = np.where(is_first, (first, second), (second, first))
        names = FIRST_NAME + np.stack([first, second, again], axis=1)
        ids = np.pad(names, ((0, 0), (1, 1)), constant_values=(BEGIN, ASK))
        labels = np.full_like(ids, IGNORE)
        labels[:, -1] = FIRST_NAME + other
        return LabeledRows(ids, labels)


class BigramBackcopyConfig(NextIdProbe, frozen=True, tag_field="kind", tag="bigram-backcopy"):
    """A Markov chain of ids; the id after a trigger is the one before it.

    The bigram-backcopy task of Guo et al. (2024, arXiv:2410.13835, §2), with a random chain in
    place of letters of a text. Trained on the next id of all positions, tested on those after
    triggers.
    """

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 begins a row, the next ones are triggers, the others a chain."""
    length: Annotated[int, Meta(ge=4, le=LONGEST)] = 64
    """Ids per row, without the last one, which is only predicted."""
    triggers: Positive = 3
    """Number of triggers."""
    trigger_rate: Annotated[float, Meta(ge=0.01, lt=1)] = 0.2
    """Probability that a trigger follows an id of the chain."""
    chain: Seed = 12345
    """Seed of the transitions, which are the same in training and test."""

    def __post_init__(self) -> None:
        if self.triggers > self.vocabulary - 3:
            raise ValueError(
                f"triggers = {self.triggers} leave fewer than 2 of {self.vocabulary} ids for the "
                "chain: choose fewer triggers, or a larger vocabulary"
            )

    @property
    def transitions(self) -> Float[np.ndarray, "vocabulary vocabulary"]:
        """Probability of each next id after each id that isn't a trigger.

        Transitions of the chain are drawn uniformly from the simplex; no trigger follows the start.
        """
        first = 1 + self.triggers
        n = self.vocabulary - first
        p = np.zeros((self.vocabulary, self.vocabulary))
        p[:, first:] = np.random.default_rng(self.chain).dirichlet(np.ones(n), self.vocabulary)
        p[first:] *= 1 - self.trigger_rate
        p[first:, 1:first] = self.trigger_rate / self.triggers
        return p

    def is_trigger(self, ids: Ids) -> Mask:
        """Return which ids are triggers."""
        return (ids > BEGIN) & (ids <= self.triggers)

    def _rows(self, rng: np.random.Generator, rows: int) -> tuple[Ids, Mask]:
        """Return rows, one id longer than the model's, and which ids follow triggers."""
        ids, n = np.full((rows, self.length + 1), BEGIN), self.vocabulary
        # One search for all rows: the cumulative distribution after id i lies in [i, i + 1].
        below = (self.transitions.cumsum(axis=1) + np.arange(n)[:, None]).ravel()
        for i in range(1, self.length + 1):
            last, before = ids[:, i - 1], ids[:, max(i - 2, 0)]
            drawn = np.searchsorted(below, last + rng.random(rows), side="right") - n * last
            # Rounding may make the sum of a distribution less than 1.
            ids[:, i] = np.where(self.is_trigger(last), before, np.minimum(drawn, n - 1))
        return ids, np.pad(self.is_trigger(ids[:, :-1]), ((0, 0), (1, 0)))
