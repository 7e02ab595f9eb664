"""Probes: rows of ids that show what a mechanism can look up, carry along and put in order.

A row says itself what is to be predicted and where: its label i is to be predicted at position i,
from the ids up to there, and is IGNORE where there is no loss.
"""

from typing import Annotated, TypeAlias

import numpy as np
from jaxtyping import Int
from msgspec import Meta

from regard.config import Config, Count, Positive
from regard.data import IGNORE
from regard.text.tokenizer import Tokenizer

SEPARATOR, NOISE, FIRST_TOKEN = 0, 1, 2
"""What parts a question from its answer, what is to be passed over, and the first of the ids that
mean nothing else. (Of mqar, all ids are keys or values.)"""

Ids: TypeAlias = Int[np.ndarray, "rows length"]


class TokensConfig(Config, frozen=True):
    """Base of probes whose output is the tokens in another order."""

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 separates input and output, 1 is noise, the others are tokens."""
    length: Positive = 16
    """Number of output tokens."""


class MqarConfig(Config, frozen=True, tag_field="kind", tag="mqar"):
    """Multi-query associative recall: key–value pairs, then queries of keys."""

    vocabulary: Annotated[int, Meta(ge=4)] = 256
    """Number of ids; the lower half are keys, the upper half values."""
    length: Annotated[int, Meta(ge=4)] = 64
    """Ids per row, an even number."""
    pairs: Positive = 8
    """Pairs of key and value, each queried once."""
    power: Annotated[float, Meta(gt=0, le=1)] = 0.01
    """a of the power law of the gaps, a·gap^(a-1); 1 makes all gaps equally likely."""

    def __post_init__(self) -> None:
        if self.length % 2:
            raise ValueError(f"length = {self.length} is odd: choose an even number")
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


class CopyConfig(TokensConfig, frozen=True, tag_field="kind", tag="copy"):
    """Tokens → the same tokens."""


class SelectiveCopyConfig(TokensConfig, frozen=True, tag_field="kind", tag="selective-copy"):
    """Tokens scattered among noise → the tokens in order."""

    noise: Count = 16
    """Number of noise positions between the tokens."""


class InductionConfig(Config, frozen=True, tag_field="kind", tag="induction"):
    """… A B … A → B."""

    vocabulary: Annotated[int, Meta(ge=4)] = 64
    """Number of ids; 0 and 1 don't occur."""
    length: Annotated[int, Meta(ge=3)] = 32
    """Ids per row."""


class SortConfig(TokensConfig, frozen=True, tag_field="kind", tag="sort"):
    """Tokens → the same tokens, sorted by id."""


class ReverseConfig(TokensConfig, frozen=True, tag_field="kind", tag="reverse"):
    """Tokens → the same tokens in reverse order."""


ProbeConfig: TypeAlias = (
    MqarConfig | CopyConfig | SelectiveCopyConfig | InductionConfig | SortConfig | ReverseConfig
)


def draw_probe(config: ProbeConfig, seed: int, rows: int) -> tuple[Ids, Ids]:
    """Rows of a probe, each drawn by itself, as arrays of ids and of labels."""
    draw = np.random.default_rng([seed, *str(config.__struct_config__.tag).encode()])
    match config:
        case MqarConfig():
            return _mqar(config, draw, rows)
        case InductionConfig():
            return _induction(config, draw, rows)
        case CopyConfig():
            tokens = _tokens(config, draw, rows)
            return _answered(tokens, tokens)
        case SelectiveCopyConfig():
            tokens = _tokens(config, draw, rows)
            return _answered(_scattered(tokens, config.noise, draw), tokens)
        case SortConfig():
            tokens = _tokens(config, draw, rows)
            return _answered(tokens, np.sort(tokens, axis=1))
        case ReverseConfig():
            tokens = _tokens(config, draw, rows)
            return _answered(tokens, tokens[:, ::-1])


def probe_rows(config: ProbeConfig, tokenizer: Tokenizer, seed: int, rows: int) -> tuple[Ids, Ids]:
    """Rows of a probe as tokens of `text.tokenizer.numbers`, with the labels of all positions."""
    ids, labels = draw_probe(config, seed, rows)
    (first,) = tokenizer.encode("0")
    return ids + first, np.where(labels == IGNORE, IGNORE, labels + first)


def _mqar(config: MqarConfig, draw: np.random.Generator, rows: int) -> tuple[Ids, Ids]:
    """Multi-query associative recall (Arora et al., 2023, arXiv:2312.04927).

    As the authors' repository has it (HazyResearch/zoology, zoology/data/multiquery_ar.py): pairs
    of key and value; then each key once more, at an even distance from the last pair that follows
    a power law; any ids in between. The label of such a key is its value.
    """
    half, context = config.vocabulary // 2, 2 * config.pairs
    keys = 1 + _distinct(draw, rows, config.pairs, half - 1)
    values = half + _distinct(draw, rows, config.pairs, config.vocabulary - half)
    gaps = _power_law(draw, rows, config.pairs, (config.length - context) // 2, config.power)
    ids = draw.integers(config.vocabulary, size=(rows, config.length))
    ids[:, 0:context:2], ids[:, 1:context:2] = keys, values
    labels = np.full_like(ids, IGNORE)
    np.put_along_axis(ids, context + 2 * gaps, keys, axis=1)
    np.put_along_axis(labels, context + 2 * gaps, values, axis=1)
    return ids, labels


def _induction(config: InductionConfig, draw: np.random.Generator, rows: int) -> tuple[Ids, Ids]:
    """… A B … A → B (Olsson et al., 2022, arXiv:2209.11895); A stands nowhere else."""
    trigger = draw.integers(FIRST_TOKEN, config.vocabulary, (rows, 1))
    ids = draw.integers(FIRST_TOKEN, config.vocabulary - 1, (rows, config.length))
    ids += ids >= trigger
    place = draw.integers(config.length - 2, size=(rows, 1))
    np.put_along_axis(ids, place, trigger, axis=1)
    ids[:, -1:] = trigger
    labels = np.full_like(ids, IGNORE)
    labels[:, -1:] = np.take_along_axis(ids, place + 1, axis=1)
    return ids, labels


def _tokens(config: TokensConfig, draw: np.random.Generator, rows: int) -> Ids:
    return draw.integers(FIRST_TOKEN, config.vocabulary, (rows, config.length))


def _answered(question: Ids, answer: Ids) -> tuple[Ids, Ids]:
    """question, separator, answer; the answer's last id need not be read any more."""
    separator = np.full_like(question[:, :1], SEPARATOR)
    ids = np.concatenate([question, separator, answer[:, :-1]], axis=1)
    return ids, np.concatenate([np.full_like(question, IGNORE), answer], axis=1)


def _scattered(tokens: Ids, noise: int, draw: np.random.Generator) -> Ids:
    """The tokens in their order, with noise anywhere between (Gu & Dao, 2023, arXiv:2312.00752)."""
    rows, length = tokens.shape
    scattered = np.full((rows, length + noise), NOISE)
    places = np.sort(_distinct(draw, rows, length, length + noise), axis=1)
    np.put_along_axis(scattered, places, tokens, axis=1)
    return scattered


def _distinct(draw: np.random.Generator, rows: int, n: int, below: int) -> Ids:
    """Rows of n different numbers of 0..below-1, by Floyd's method (Bentley & Floyd, 1987)."""
    chosen = np.empty((rows, n), dtype=np.int64)
    for i, highest in enumerate(range(below - n, below)):
        new = draw.integers(highest, size=rows, endpoint=True)
        taken = (chosen[:, :i] == new[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, highest, new)
    return draw.permuted(chosen, axis=1)


def _power_law(draw: np.random.Generator, rows: int, n: int, below: int, a: float) -> Ids:
    """Rows of n different numbers, drawn one by one, each in proportion to (1 + number)^(a-1).

    Exponential clocks that ring at those rates ring in such an order.
    """
    rates = np.arange(1, below + 1) ** (a - 1)
    return np.argsort(draw.exponential(size=(rows, below)) / rates, axis=1)[:, :n]
