"""Metrics of effects: the logit difference of two continuations, or the probability of one.

`read_pairs` reads pairs of texts and the two continuations of each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from jaxtyping import Float
from torch import Tensor

from regard.attention.base import at_least_float32
from regard.errors import UserError, alternatives
from regard.files import read_text, split_lines
from regard.text.tokenizer import Tokenizer, locate_unknown

Measure: TypeAlias = Callable[[Float[Tensor, "b vocabulary"]], Float[Tensor, " b"]]
"""The metric of one pair of texts, as a function of the next token's logits."""


class Metric(Protocol):
    """A metric, for each pair of texts."""

    name: ClassVar[str]

    def measures(self, n: int, tokenizer: Tokenizer) -> list[Measure]:
        """Return the metric of each of n pairs.

        Raises:
            UserError: the words don't fit the pairs or the tokenizer.
        """


@dataclass(frozen=True)
class LogitDifference:
    """m = logit of the right next token − logit of the wrong one, for each pair of texts.

    >>> metric = LogitDifference(right=("Rome",), wrong=("Oslo",))
    >>> ((right, wrong),) = metric.for_pairs(1, run.tokenizer)
    >>> run.tokenizer.decode([right, wrong])
    'Rome Oslo'
    """

    name: ClassVar[str] = "logit difference"
    right: tuple[str, ...]
    wrong: tuple[str, ...]

    def for_pairs(self, n: int, tokenizer: Tokenizer) -> list[tuple[int, int]]:
        """Return the ids of the two tokens for each of n pairs.

        Raises:
            UserError: there are not n words, a word can't be encoded, or the right and the wrong
                word begin with the same token.
        """
        every = (_for_pairs(self.right, n, "right"), _for_pairs(self.wrong, n, "wrong"))
        numbered = enumerate(zip(*every, strict=True), 1)
        return [
            _two_ids(tokenizer, right, wrong, _where(pair, n)) for pair, (right, wrong) in numbered
        ]

    def measures(self, n: int, tokenizer: Tokenizer) -> list[Measure]:
        """Return the difference of logits for each of n pairs.

        Raises:
            UserError: as `for_pairs`.
        """
        return [partial(_difference, ids=ids) for ids in self.for_pairs(n, tokenizer)]


@dataclass(frozen=True)
class Probability:
    """m = probability of the right next token, for each pair of texts.

    >>> metric = Probability(right=("Rome",))
    >>> (measure,) = metric.measures(1, run.tokenizer)
    >>> measure(torch.zeros(1, 15))  # of 15 tokens with equal logits
    tensor([0.0667])
    """

    name: ClassVar[str] = "probability"
    right: tuple[str, ...]

    def measures(self, n: int, tokenizer: Tokenizer) -> list[Measure]:
        """Return the probability for each of n pairs.

        Raises:
            UserError: there are not n words, or one can't be encoded.
        """
        words = enumerate(_for_pairs(self.right, n, "right"), 1)
        tokens = [_first_id(tokenizer, word, _where(pair, n)) for pair, word in words]
        return [partial(_probability, token=token) for token in tokens]


def logit_difference(right: str | Sequence[str], wrong: str | Sequence[str]) -> LogitDifference:
    """Return the metric of right and wrong continuations, for all pairs or one for each.

    Only the first token of each continuation counts; the tokenizer encodes it separately.

    >>> metric = logit_difference("Rome", "Oslo")
    >>> found = regard.trace(run, "Where was Ada born?", "Where was Bob born?", metric=metric)
    >>> found.rows()[0]["site"]  # restores the whole difference
    "decoder.0.residual at 3 'Ada'"
    """
    return LogitDifference(as_tuple(right), as_tuple(wrong))


def probability(right: str | Sequence[str]) -> Probability:
    """Return the metric of the right continuation, for all pairs or one for each.

    Only its first token counts; the tokenizer encodes it separately. Causal tracing measures
    effects on probabilities (Meng et al., 2022, arXiv:2202.05262, §2.1).

    >>> metric = probability("Rome")
    >>> found = regard.trace(run, "Where was Ada born?", "Where was Bob born?", metric=metric)
    >>> found.rows()[0]["site"]  # restores the whole difference
    "decoder.0.residual at 3 'Ada'"
    """
    return Probability(as_tuple(right))


def as_tuple(texts: str | Sequence[str]) -> tuple[str, ...]:
    """Return one text or several as a tuple."""
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _for_pairs(words: tuple[str, ...], n: int, name: str) -> tuple[str, ...]:
    """Return a word for each of n pairs, given n words or one for all."""
    if len(words) not in (1, n):
        raise UserError(f"metric: {len(words)} {name} words for {n} pairs of texts")
    return words * n if len(words) == 1 else words


def _where(pair: int, n: int) -> str:
    return f"pair {pair}" if n > 1 else "metric"


def _first_id(tokenizer: Tokenizer, word: str, where: str) -> int:
    with locate_unknown(where, tokenizer):
        ids = tokenizer.encode(word)
    if not ids:
        raise UserError(f"{where}: a continuation is empty; name a word")
    return ids[0]


def _two_ids(tokenizer: Tokenizer, right: str, wrong: str, where: str) -> tuple[int, int]:
    first, second = (_first_id(tokenizer, word, where) for word in (right, wrong))
    if first == second:
        same = tokenizer.decode([first])
        raise UserError(
            f"{where}: {right!r} and {wrong!r} begin with the same token, {same!r}; choose "
            "others, or append their common start to the texts"
        )
    return first, second


def _difference(logits: Float[Tensor, "b vocabulary"], ids: tuple[int, int]) -> Float[Tensor, " b"]:
    return logits[:, ids[0]] - logits[:, ids[1]]


def _probability(logits: Float[Tensor, "b vocabulary"], token: int) -> Float[Tensor, " b"]:
    return at_least_float32(logits).softmax(-1)[:, token]


PAIR_COLUMNS = ("clean", "corrupt", "right", "wrong")


class TextPairs(NamedTuple):
    """Pairs of texts, and their metric: logit of the right word − logit of the wrong one."""

    clean: tuple[str, ...]
    corrupt: tuple[str, ...]
    metric: LogitDifference


def read_pairs(path: Path) -> TextPairs:
    """Read a TSV file with a header: the columns clean, corrupt, right and wrong, in any order.

    Raises:
        UserError: a column is missing, a row has the wrong number of cells, or there is no row.
    """
    header, *lines = (line.split("\t") for line in split_lines(read_text(path)) or [""])
    if header == [""]:
        raise UserError(f"{path}: has no header; begin with the columns {', '.join(PAIR_COLUMNS)}")
    for name in PAIR_COLUMNS:
        if name not in header:
            raise UserError(f"{path}: has no column {name}; {alternatives(name, header)}")
    rows = [(number, row) for number, row in enumerate(lines, 2) if row != [""]]
    if not rows:
        raise UserError(f"{path}: has no row under its header")
    for number, row in rows:
        if len(row) != len(header):
            raise UserError(f"{path}:{number}: has {len(row)} cells, and the header {len(header)}")
        if empty := [n for n in PAIR_COLUMNS if not row[header.index(n)]]:
            raise UserError(f"{path}:{number}: {empty[0]} is empty")
    clean, corrupt, right, wrong = (
        tuple(row[header.index(name)] for _, row in rows) for name in PAIR_COLUMNS
    )
    return TextPairs(clean, corrupt, LogitDifference(right, wrong))
