"""Metrics of an effect: differences of logits of two continuations."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError
from regard.text.tokenizer import Tokenizer, locate_unknown


@dataclass(frozen=True)
class LogitDifference:
    """m = logit of the right next token − logit of the wrong one, for each pair of texts.

    >>> metric = LogitDifference(right=("Rome",), wrong=("Oslo",))
    >>> ((right, wrong),) = metric.for_pairs(1, run.tokenizer)
    >>> run.tokenizer.decode([right, wrong])
    'Rome Oslo'
    """

    right: tuple[str, ...]
    wrong: tuple[str, ...]

    def for_pairs(self, n: int, tokenizer: Tokenizer) -> list[tuple[int, int]]:
        """Return the ids of the two tokens for each of n pairs.

        Raises:
            UserError: there are others than n, one can't be encoded, or two begin alike.
        """
        for name, words in (("right", self.right), ("wrong", self.wrong)):
            if len(words) not in (1, n):
                raise UserError(f"metric: {len(words)} {name} words for {n} pairs of texts")
        every = (words * n if len(words) == 1 else words for words in (self.right, self.wrong))
        numbered = enumerate(zip(*every, strict=True), 1)
        return [
            _two_ids(tokenizer, right, wrong, f"pair {pair}" if n > 1 else "metric")
            for pair, (right, wrong) in numbered
        ]


def logit_difference(right: str | Sequence[str], wrong: str | Sequence[str]) -> LogitDifference:
    """Return the metric of right and wrong continuations, for all pairs or one for each.

    Their first tokens count, as the tokenizer encodes them alone.

    >>> metric = logit_difference("Rome", "Oslo")
    >>> found = regard.trace(run, "Where was Ada born?", "Where was Bob born?", metric=metric)
    >>> found.rows()[0]["site"]  # restores the whole difference
    "decoder.0.residual at 3 'Ada'"
    """
    return LogitDifference(_words(right), _words(wrong))


def _words(words: str | Sequence[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _two_ids(tokenizer: Tokenizer, right: str, wrong: str, where: str) -> tuple[int, int]:
    with locate_unknown(where, tokenizer):
        first, second = (tokenizer.encode(word)[:1] for word in (right, wrong))
    if not first or not second:
        raise UserError(f"{where}: a continuation is empty; name the right and the wrong word")
    if first == second:
        same = tokenizer.decode(first)
        raise UserError(
            f"{where}: {right!r} and {wrong!r} begin with the same token, {same!r}; choose "
            "others, or end the texts with what the two share"
        )
    return first[0], second[0]


def differences(logits: Float[Tensor, "b vocabulary"], ids: tuple[int, int]) -> Float[Tensor, " b"]:
    """Return the difference of two logits of each row."""
    return logits[:, ids[0]] - logits[:, ids[1]]
