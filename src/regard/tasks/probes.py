"""Probes: rows of ids that test recall, copying and sorting.

A row says itself what is to be predicted and where: its label i is to be predicted at position i,
from the ids up to there, and is IGNORE where there is no loss.
"""

from typing import Annotated, TypeAlias

import numpy as np
from msgspec import Meta

from regard.config import LONGEST, Count, Positive
from regard.data import IGNORE
from regard.tasks.circuit_probes import BigramBackcopyConfig, IndirectObjectConfig, RepeatedConfig
from regard.tasks.mad import (
    CompressionConfig,
    FuzzyRecallConfig,
    InContextRecallConfig,
    MemorizationConfig,
    NoisyRecallConfig,
)
from regard.tasks.probe import Ids, LabeledRows, Probe, require_even
from regard.tasks.state_tracking import ParityConfig, StateTrackingConfig
from regard.text.tokenizer import Tokenizer, word_tokenizer

SEPARATOR, NOISE, FIRST_TOKEN = 0, 1, 2
"""Ids: separator of question and answer, noise, and the first ordinary id. (In mqar, all ids are
keys or values.)"""


# Recall


class MqarConfig(Probe, frozen=True, tag_field="kind", tag="mqar"):
    """Multi-query associative recall: key–value pairs, then queries of keys.

    As in Arora et al. (2023, arXiv:2312.04927; HazyResearch/zoology,
    zoology/data/multiquery_ar.py): key–value pairs, then each key once more, with its value as
    label. The distance of a query from the last pair is even and follows a power law; positions in
    between have random ids.
    """

    vocabulary: Annotated[int, Meta(ge=4)] = 256
    """Number of ids; the lower half are keys, the upper half values."""
    length: Annotated[int, Meta(ge=4, le=LONGEST)] = 64
    """Ids per row, an even number."""
    pairs: Positive = 8
    """Pairs of key and value, each queried once."""
    power: Annotated[float, Meta(gt=0, le=1)] = 0.01
    """a in the power law of gaps, a·gap^(a-1); 1 makes all gaps equally likely."""

    def __post_init__(self) -> None:
        require_even(self.length)
        if 4 * self.pairs > self.length:
            raise ValueError(
                f"pairs = {self.pairs} and their queries need a length of {4 * self.pairs}, "
                f"not {self.length}: choose fewer pairs, or longer rows"
            )
        if self.pairs >= self.vocabulary // 2:
            raise ValueError(
                f"pairs = {self.pairs} need as many keys, and vocabulary = {self.vocabulary} has "
                f"{self.vocabulary // 2 - 1}: choose a larger vocabulary"
            )

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows with a label at each query."""
        half, context = self.vocabulary // 2, 2 * self.pairs
        keys = 1 + _distinct(rng, rows, self.pairs, half - 1)
        values = half + _distinct(rng, rows, self.pairs, self.vocabulary - half)
        gaps = _power_law(rng, rows, self.pairs, (self.length - context) // 2, self.power)
        ids = rng.integers(self.vocabulary, size=(rows, self.length))
        ids[:, 0:context:2], ids[:, 1:context:2] = keys, values
        labels = np.full_like(ids, IGNORE)
        np.put_along_axis(ids, context + 2 * gaps, keys, axis=1)
        np.put_along_axis(labels, context + 2 * gaps, values, axis=1)
        return LabeledRows(ids, labels)


class InductionConfig(Probe, frozen=True, tag_field="kind", tag="induction"):
    """… A B … A → B.

    Olsson et al. (2022, arXiv:2209.11895); A occurs nowhere else.
    """

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 and 1 don't occur."""
    length: Annotated[int, Meta(ge=3, le=LONGEST)] = 32
    """Ids per row."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows with a label at the last position."""
        trigger = rng.integers(FIRST_TOKEN, self.vocabulary, (rows, 1))
        ids = rng.integers(FIRST_TOKEN, self.vocabulary - 1, (rows, self.length))
        ids += ids >= trigger
        place = rng.integers(self.length - 2, size=(rows, 1))
        np.put_along_axis(ids, place, trigger, axis=1)
        ids[:, -1:] = trigger
        labels = np.full_like(ids, IGNORE)
        labels[:, -1:] = np.take_along_axis(ids, place + 1, axis=1)
        return LabeledRows(ids, labels)


class NeedleConfig(Probe, frozen=True, tag_field="kind", tag="needle"):
    """One marked value among other ids → the value; test rows can fix its distance.

    A needle in a haystack (Kamradt, 2023, gkamradt/LLMTest_NeedleInAHaystack; Hsieh et al., 2024,
    arXiv:2404.06654, NVIDIA/RULER) in ids: 0, then the value, anywhere among uniform ids; a second
    0 at the end asks for it.
    """

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 marks the value and asks for it, 1 doesn't occur."""
    length: Annotated[int, Meta(ge=3, le=LONGEST)] = 128
    """Ids per row."""
    test_length: Annotated[int, Meta(ge=3, le=LONGEST)] | None = None
    """Ids per test row. Default: as in training."""
    distance: Positive | None = None
    """Positions from the value to the question in test rows. Default: any."""

    def __post_init__(self) -> None:
        longest = self.test_length or self.length
        if self.distance is not None and self.distance > longest - 2:
            raise ValueError(
                f"distance = {self.distance} is more than test rows of {longest} ids have: "
                f"choose {longest - 2} or less"
            )

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows with the value at a uniform position and a label at the last position."""
        return self._rows(rng, rows, self.length, None)

    def draw_test(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of the test length, with the value at `distance` if given."""
        return self._rows(rng, rows, self.test_length or self.length, self.distance)

    def _rows(
        self, rng: np.random.Generator, rows: int, length: int, distance: int | None
    ) -> LabeledRows:
        if distance is None:
            place = rng.integers(1, length - 1, size=(rows, 1))
        else:
            place = np.full((rows, 1), length - 1 - distance)
        ids = rng.integers(FIRST_TOKEN, self.vocabulary, (rows, length))
        labels = np.full_like(ids, IGNORE)
        labels[:, -1:] = np.take_along_axis(ids, place, axis=1)
        np.put_along_axis(ids, place - 1, SEPARATOR, axis=1)
        ids[:, -1] = SEPARATOR
        return LabeledRows(ids, labels)


# Tokens in another order


class TokensConfig(Probe, frozen=True):
    """Base of probes whose output is the tokens in another order."""

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 separates input and output, 1 is noise, the others are tokens."""
    length: Annotated[int, Meta(ge=1, le=LONGEST)] = 16
    """Number of output tokens."""

    def _tokens(self, rng: np.random.Generator, rows: int) -> Ids:
        return rng.integers(FIRST_TOKEN, self.vocabulary, (rows, self.length))


class CopyConfig(TokensConfig, frozen=True, tag_field="kind", tag="copy"):
    """Tokens → the same tokens."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of tokens, a separator and the answer."""
        tokens = self._tokens(rng, rows)
        return _answered(tokens, tokens)


class SelectiveCopyConfig(TokensConfig, frozen=True, tag_field="kind", tag="selective-copy"):
    """Tokens scattered among noise → the tokens in order.

    Gu & Dao (2023, arXiv:2312.00752).
    """

    noise: Count = 16
    """Number of noise positions between the tokens."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of tokens with noise anywhere between, a separator and the answer."""
        tokens, n = self._tokens(rng, rows), self.length + self.noise
        scattered = np.full((rows, n), NOISE)
        places = np.sort(_distinct(rng, rows, self.length, n), axis=1)
        np.put_along_axis(scattered, places, tokens, axis=1)
        return _answered(scattered, tokens)


class SortConfig(TokensConfig, frozen=True, tag_field="kind", tag="sort"):
    """Tokens → the same tokens, sorted by id."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of tokens, a separator and the answer."""
        tokens = self._tokens(rng, rows)
        return _answered(tokens, np.sort(tokens, axis=1))


class ReverseConfig(TokensConfig, frozen=True, tag_field="kind", tag="reverse"):
    """Tokens → the same tokens in reverse order."""

    def draw(self, rng: np.random.Generator, rows: int) -> LabeledRows:
        """Return rows of tokens, a separator and the answer."""
        tokens = self._tokens(rng, rows)
        return _answered(tokens, tokens[:, ::-1])


def _answered(question: Ids, answer: Ids) -> LabeledRows:
    """Return rows of question, separator and answer without its last id, which is never read."""
    separator = np.full_like(question[:, :1], SEPARATOR)
    ids = np.concatenate([question, separator, answer[:, :-1]], axis=1)
    return LabeledRows(ids, np.concatenate([np.full_like(question, IGNORE), answer], axis=1))


# All probes


ProbeConfig: TypeAlias = (
    MqarConfig
    | CopyConfig
    | SelectiveCopyConfig
    | InductionConfig
    | SortConfig
    | ReverseConfig
    | NeedleConfig
    | ParityConfig
    | StateTrackingConfig
    | InContextRecallConfig
    | NoisyRecallConfig
    | FuzzyRecallConfig
    | MemorizationConfig
    | CompressionConfig
    | RepeatedConfig
    | IndirectObjectConfig
    | BigramBackcopyConfig
)


def draw_probe(config: ProbeConfig, seed: int, rows: int) -> LabeledRows:
    """Return rows of a probe to train on."""
    return config.draw(_generator(config, seed), rows)


def draw_probe_test(config: ProbeConfig, seed: int, rows: int) -> LabeledRows:
    """Return rows of a probe to score a model on."""
    return config.draw_test(_generator(config, seed), rows)


def number_tokenizer(n: int) -> Tokenizer:
    """Return a tokenizer of the numbers 0 to n-1, each a token."""
    return word_tokenizer([f" {i}" for i in range(n)])


def as_tokens(rows: LabeledRows, tokenizer: Tokenizer) -> LabeledRows:
    """Return rows with tokens of a `number_tokenizer` for ids and labels."""
    ids, labels = rows
    (first,) = tokenizer.encode("0")
    return LabeledRows(ids + first, np.where(labels == IGNORE, IGNORE, labels + first))


def _generator(config: ProbeConfig, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *str(config.__struct_config__.tag).encode()])


# Draws


def _distinct(rng: np.random.Generator, rows: int, n: int, below: int) -> Ids:
    """Draw n distinct numbers in 0..below-1 per row, by Floyd's method (Bentley & Floyd, 1987)."""
    chosen = np.empty((rows, n), dtype=np.int64)
    for i, highest in enumerate(range(below - n, below)):
        new = rng.integers(highest, size=rows, endpoint=True)
        taken = (chosen[:, :i] == new[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, highest, new)
    return rng.permuted(chosen, axis=1)


def _power_law(rng: np.random.Generator, rows: int, n: int, below: int, a: float) -> Ids:
    """Draw n distinct numbers per row, with weights (1 + number)^(a-1) and without replacement.

    The order of independent exponential variables with these rates has this distribution.
    """
    rates = np.arange(1, below + 1) ** (a - 1)
    return np.argsort(rng.exponential(size=(rows, below)) / rates, axis=1)[:, :n]
