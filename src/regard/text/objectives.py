"""What to predict: each objective makes an example from token ids.

An example is a row of ids and, for each of them, whether it is a target. The model reads
ids[:-1] and predicts ids[1:]; loss falls on the targets alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.text.vocabulary import MASK

IGNORE = -100
"""The label of a position that carries no loss (as in torch's cross entropy)."""


@dataclass(frozen=True)
class EncodedExample:
    """Token ids and which of them are to be predicted from those before."""

    ids: Sequence[int]
    targets: Sequence[bool]


def next_token(document: Sequence[int], block: int) -> EncodedExample:
    """Every token from those before; ⁇ ends the document, if it fits."""
    ids = [*document, MASK][: block + 1]
    return EncodedExample(ids, [True] * len(ids))


def continuation(document: Sequence[int]) -> EncodedExample:
    """Every token from those before, in a text that may go on."""
    return EncodedExample(document, [True] * len(document))


def pieces(document: Sequence[int], block: int) -> list[Sequence[int]]:
    """A long document in pieces of a block, each beginning with the last token of the one before.

    So every token but the first is predicted once.
    """
    return [
        document[start : start + block + 1] for start in range(0, max(len(document) - 1, 1), block)
    ]


def begin(prefix: Sequence[int], example: EncodedExample) -> EncodedExample:
    """The example behind a prefix, which isn't predicted."""
    return EncodedExample([*prefix, *example.ids], [*[False] * len(prefix), *example.targets])


def span_corruption(
    document: Sequence[int], block: int, draw: np.random.Generator
) -> EncodedExample:
    """prefix ⁇ suffix ⁇ span: a span is cut out and follows at the end.

    The document is truncated to a length uniform in 4..⌊7/8·block⌋, the length of the span is
    uniform in 1..2m-1 with mean m = ¼ of what is left (at least 1), its place is uniform. The
    objective of Stanford CS224N's assignment 5, after T5 (Raffel et al., 2020).
    """
    truncated = document[: int(draw.integers(4, block * 7 // 8 + 1))]
    mean = max(len(truncated) // 4, 1)
    length = min(int(draw.integers(1, 2 * mean)), len(truncated))
    start = int(draw.integers(0, len(truncated) - length + 1))
    prefix, span, suffix = (
        truncated[:start],
        truncated[start : start + length],
        truncated[start + length :],
    )
    ids = [*prefix, MASK, *suffix, MASK, *span]
    return EncodedExample(ids, [True] * len(ids))


def question_answer(question: Sequence[int], answer: Sequence[int]) -> EncodedExample:
    """question ⁇ answer ⁇, with loss on ⁇, answer, ⁇ only."""
    ids = [*question, MASK, *answer, MASK]
    return EncodedExample(ids, [False] * len(question) + [True] * (len(answer) + 2))


def masked_tokens(
    document: Sequence[int], vocabulary: int, draw: np.random.Generator, share: float = 0.15
) -> tuple[list[int], list[int]]:
    """Masked-token prediction for models that see both sides (Devlin et al., 2019, §3.1).

    Of the chosen tokens, at least one, 80 % become ⁇, 10 % a random token, 10 % stay.

    Returns:
        The corrupted ids and the labels: the true id where it was chosen, IGNORE elsewhere.
    """
    n_special = MASK + 1
    ids, labels = list(document), [IGNORE] * len(document)
    for i in _chosen(len(document), share, draw):
        labels[i] = document[i]
        fate = draw.random()
        if fate < 0.8:
            ids[i] = MASK
        elif fate < 0.9:
            ids[i] = int(draw.integers(n_special, vocabulary))
    return ids, labels


def hidden_tokens(
    document: Sequence[int], draw: np.random.Generator, share: float
) -> tuple[list[int], list[int]]:
    """Masked autoencoding: chosen tokens are all hidden behind ⁇, which keeps their place.

    Returns:
        The ids, and the labels: the true id where it is hidden, IGNORE elsewhere.
    """
    ids, labels = list(document), [IGNORE] * len(document)
    for i in _chosen(len(document), share, draw):
        ids[i], labels[i] = MASK, document[i]
    return ids, labels


def _chosen(n: int, share: float, draw: np.random.Generator) -> list[int]:
    """A share of n places, at least one."""
    chosen: list[int] = draw.permutation(n)[: max(1, round(share * n))].tolist()
    return chosen
