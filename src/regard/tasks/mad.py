"""Probes of MAD, mechanistic architecture design (Poli et al., 2024, arXiv:2403.17844).

Definitions and default sizes are those of the authors' repository (athms/mad-lab,
mad/data/instances.py and configs/tasks, with multi_query). Recall is trained on the next id at all
positions, and tested on values only. Selective copying is in `probes`.
"""

from typing import Annotated

import numpy as np
from jaxtyping import Bool, Int
from msgspec import Meta

from regard.config import LONGEST, Positive, Probability, Seed
from regard.data import IGNORE
from regard.tasks.probe import (
    Ids,
    LabeledRows,
    Mask,
    NextIdProbe,
    Probe,
    next_ids_where,
    require_even,
)

CHUNK = 1000
"""Number of rows of fuzzy recall to draw at a time, to bound memory."""
EMPTY = -1
"""Padding of keys and values shorter than the longest."""


class InContextRecallConfig(NextIdProbe, frozen=True, tag_field="kind", tag="in-context-recall"):
    """Pairs of key and value, repeated in a random order → the value of a known key.

    Keys are uniform, and each has a value that is drawn once for the row. The key of the last pair
    is uniform among those before.
    """

    vocabulary: Annotated[int, Meta(ge=4)] = 16
    """Number of ids; the lower half are keys, the upper half values."""
    length: Annotated[int, Meta(ge=4, le=LONGEST)] = 128
    """Ids per row with the last value, which is only predicted; an even number."""

    def __post_init__(self) -> None:
        require_even(self.length)

    def _rows(self, rng: np.random.Generator, rows: int) -> tuple[Ids, Mask]:
        is_noise = np.zeros((rows, self.length // 2), dtype=bool)
        return _recall_pairs(rng, self.vocabulary, is_noise)


class NoisyRecallConfig(NextIdProbe, frozen=True, tag_field="kind", tag="noisy-recall"):
    """In-context recall with noise between the pairs.

    Each pair but the last is replaced by two uniform noise ids with a given probability, except one
    uniformly drawn pair.
    """

    vocabulary: Annotated[int, Meta(ge=5)] = 32
    """Number of ids: keys, then as many values, then noise."""
    length: Annotated[int, Meta(ge=4, le=LONGEST)] = 128
    """Ids per row with the last value, which is only predicted; an even number."""
    noise_vocabulary: Positive = 16
    """Number of ids that are noise."""
    noise: Probability = 0.2
    """Probability that a pair is noise."""

    def __post_init__(self) -> None:
        require_even(self.length)
        if self.vocabulary - self.noise_vocabulary < 4:
            raise ValueError(
                f"vocabulary = {self.vocabulary} and noise_vocabulary = {self.noise_vocabulary} "
                "leave fewer than 4 ids for keys and values: choose a larger vocabulary"
            )

    def _rows(self, rng: np.random.Generator, rows: int) -> tuple[Ids, Mask]:
        n, below = self.length // 2, self.vocabulary - self.noise_vocabulary
        is_noise = rng.random((rows, n)) < self.noise
        is_noise[:, -1] = False
        np.put_along_axis(is_noise, rng.integers(n - 1, size=(rows, 1)), False, axis=1)
        pairs, asked = _recall_pairs(rng, below, is_noise)
        noise = rng.integers(below, self.vocabulary, size=pairs.shape)
        return np.where(is_noise.repeat(2, axis=1), noise, pairs), asked


def _recall_pairs(
    rng: np.random.Generator, vocabulary: int, is_noise: Bool[np.ndarray, "rows pairs"]
) -> tuple[Ids, Mask]:
    """Return rows of pairs, where noise pairs are skipped, and a mask of values of known keys."""
    rows, n = is_noise.shape
    half = vocabulary // 2
    values = rng.integers(half, vocabulary, size=(rows, half))
    keys = rng.integers(half, size=(rows, n))
    shown = np.zeros((rows, half), dtype=bool)
    row, pair = np.nonzero(~is_noise[:, :-1])
    shown[row, keys[row, pair]] = True
    keys[:, -1] = np.where(shown, rng.random(shown.shape), -1).argmax(axis=1)
    numbers = np.where(is_noise, -1 - np.arange(n), keys)
    asked = np.zeros((rows, n, 2), dtype=bool)
    asked[:, :, 1] = _first_places(numbers) < np.arange(n)
    pairs = np.stack([keys, np.take_along_axis(values, keys, axis=1)], axis=2)
    return pairs.reshape(rows, 2 * n), asked.reshape(rows, 2 * n)


def _first_places(numbers: Int[np.ndarray, "rows n"]) -> Int[np.ndarray, "rows n"]:
    """Return the first position of each number in its row."""
    order = np.argsort(numbers, axis=1, kind="stable")
    ordered = np.take_along_axis(numbers, order, axis=1)
    begins = np.ones(numbers.shape, dtype=bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = np.maximum.accumulate(np.where(begins, np.arange(numbers.shape[1]), 0), axis=1)
    first = np.empty_like(order)
    np.put_along_axis(first, order, np.take_along_axis(order, group, axis=1), axis=1)
    return first


class FuzzyRecallConfig(NextIdProbe, frozen=True, tag_field="kind", tag="fuzzy-recall"):
    """In-context recall whose keys and values are several ids long, tested on the longest keys.

    Keys and values have uniformly drawn lengths and distinct uniform ids; a key has one value per
    row. Pairs are drawn while the longest one would still fit; the last pair is drawn uniformly
    from the earlier ones. (The authors draw the last pair first, and insert it at a random place.)
    Rows are padded on the left.
    """

    vocabulary: Annotated[int, Meta(ge=5)] = 16
    """Number of ids; the last one fills rows, of the others, the lower half are keys, the upper
    half values."""
    length: Annotated[int, Meta(ge=1, le=LONGEST)] = 128
    """Ids per row, without the last one, which is only predicted."""
    key_size: Positive = 3
    """Largest number of ids of a key."""
    value_size: Positive = 3
    """Largest number of ids of a value."""

    def __post_init__(self) -> None:
        keys = (self.vocabulary - 1) // 2
        if max(self.key_size, self.value_size) > keys:
            raise ValueError(
                f"key_size = {self.key_size} and value_size = {self.value_size} need as many "
                f"different ids, and vocabulary = {self.vocabulary} has {keys} for keys: choose a "
                "larger vocabulary"
            )
        shortest = 2 * (self.key_size + self.value_size) - 1
        if self.length < shortest:
            raise ValueError(
                f"length = {self.length} is too short for two pairs: choose {shortest} or more"
            )

    def draw_test(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows with keys of the largest size, whose labels are values of known keys."""
        return next_ids_where(*self._rows(rng, rows, shortest_key=self.key_size))

    def _rows(
        self, rng: np.random.Generator, rows: int, *, shortest_key: int = 1
    ) -> tuple[Ids, Mask]:
        sizes = [min(CHUNK, rows - start) for start in range(0, rows, CHUNK)] or [0]
        chunks = [self._chunk(rng, size, shortest_key) for size in sizes]
        ids, asked = zip(*chunks, strict=True)
        return np.concatenate(ids), np.concatenate(asked)

    def _chunk(self, rng: np.random.Generator, rows: int, shortest_key: int) -> tuple[Ids, Mask]:
        """Return rows of pairs, and a mask of the values of known keys."""
        filler, n = self.vocabulary - 1, self.length + 1
        half, most = filler // 2, n // (shortest_key + 1) + 1
        keys = _motifs(rng, (rows, most), half, shortest_key, self.key_size)
        values = _motifs(rng, (rows, most), filler - half, 1, self.value_size)
        values = np.where(values == EMPTY, EMPTY, values + half)
        first = _first_places((keys + 1) @ self.vocabulary ** np.arange(self.key_size))
        pairs = np.concatenate(
            [keys, np.take_along_axis(values, first[:, :, None], axis=1)], axis=2
        )
        ends = (pairs != EMPTY).sum(axis=2).cumsum(axis=1)
        n_kept = (ends <= n - self.key_size - self.value_size).sum(axis=1)
        seen = first < np.arange(most)
        row, chosen = np.arange(rows), rng.integers(n_kept)
        pairs[row, n_kept], seen[row, n_kept] = pairs[row, chosen], True
        pairs[np.arange(most) > n_kept[:, None]] = EMPTY
        asked = np.zeros(pairs.shape, dtype=bool)
        asked[:, :, self.key_size :] = seen[:, :, None]
        flat = rows, most * (self.key_size + self.value_size)
        ids, asked = _right_aligned(pairs.reshape(flat), asked.reshape(flat), n)
        return np.where(ids == EMPTY, filler, ids), asked & (ids != EMPTY)


def _motifs(
    rng: np.random.Generator, shape: tuple[int, int], below: int, shortest: int, longest: int
) -> Int[np.ndarray, "rows pairs longest"]:
    """Draw `shortest` to `longest` distinct numbers each, padded with EMPTY."""
    motifs = rng.random((*shape, below)).argsort(axis=2)[:, :, :longest]
    sizes = rng.integers(shortest, longest, size=(*shape, 1), endpoint=True)
    return np.where(np.arange(longest) < sizes, motifs, EMPTY)


def _right_aligned(ids: Ids, asked: Mask, n: int) -> tuple[Ids, Mask]:
    """Move the ids of rows to the right over EMPTY, and keep the last n."""
    order = np.argsort(ids != EMPTY, axis=1, kind="stable")[:, -n:]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(asked, order, axis=1)


class CompressionConfig(Probe, frozen=True, tag_field="kind", tag="compression"):
    """Uniform ids and an end id → all of them, from the last hidden state alone.

    The label of each position is its own id (generate_compression_instance, without noise). The
    model is MAD's autoencoder: a body whose last hidden state is the input of
    `models.heads.ReconstructionHead`.
    """

    vocabulary: Annotated[int, Meta(ge=2)] = 16
    """Number of ids; the last one ends each row."""
    length: Annotated[int, Meta(ge=2, le=LONGEST)] = 32
    """Ids per row, the last one included."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows whose labels are their own ids."""
        ids = rng.integers(self.vocabulary - 1, size=(rows, self.length))
        ids[:, -1] = self.vocabulary - 1
        return LabeledRows(ids, ids)


class MemorizationConfig(Probe, frozen=True, tag_field="kind", tag="memorization"):
    """Keys → their values, which are the same in all rows and never shown.

    Uniform keys, each followed by a query id for its value. No two keys share a value.
    """

    vocabulary: Annotated[int, Meta(ge=3)] = 256
    """Number of ids; the last one asks for a value, of the others, the lower half are keys, the
    upper half values."""
    length: Annotated[int, Meta(ge=2, le=LONGEST)] = 32
    """Ids per row, an even number."""
    mapping: Seed = 12345
    """Seed of the values of keys, in training and test."""

    def __post_init__(self) -> None:
        require_even(self.length)

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of keys and questions, with a label at each question."""
        ask = self.vocabulary - 1
        half = ask // 2
        values = half + np.random.default_rng(self.mapping).permutation(ask - half)[:half]
        keys = rng.integers(half, size=(rows, self.length // 2))
        ids = np.stack([keys, np.full_like(keys, ask)], axis=2)
        labels = np.stack([np.full_like(keys, IGNORE), values[keys]], axis=2)
        return LabeledRows(ids.reshape(rows, self.length), labels.reshape(rows, self.length))
