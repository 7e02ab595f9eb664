"""Masked language modeling: tokens are predicted from both sides."""

from collections.abc import Sequence

import numpy as np

from regard.data import IGNORE
from regard.data.batch import Batch, Dataset, RowFormat

MaskedExample = tuple[list[int], list[int]]
"""Ids and labels."""


class MaskedTokens(Dataset):
    """Texts with a random share of their tokens masked or replaced, drawn each time (BERT)."""

    def __init__(
        self,
        texts: Sequence[Sequence[int]],
        format: RowFormat,
        *,
        mask: int,
        share: float,
        regular_ids: Sequence[int],
    ) -> None:
        """`regular_ids` are the ids that may replace a token."""
        super().__init__(texts, format)
        self._mask, self._share, self._regular_ids = mask, share, regular_ids

    def example(self, index: int, rng: np.random.Generator) -> MaskedExample:
        return mask_tokens(
            self.rows[index],
            rng,
            mask=self._mask,
            share=self._share,
            regular_ids=self._regular_ids,
        )

    def collate(self, examples: Sequence[MaskedExample]) -> Batch:
        ids, labels = zip(*examples, strict=True)
        inputs = {"input_ids": self.format.input_ids(ids)}
        return Batch(inputs, self.format.aligned(labels, IGNORE).ids)


class MaskedAutoencoding(MaskedTokens):
    """Texts with a random share of their tokens masked, drawn each time; none is replaced."""

    def __init__(
        self, texts: Sequence[Sequence[int]], format: RowFormat, *, mask: int, share: float
    ) -> None:
        super().__init__(texts, format, mask=mask, share=share, regular_ids=())

    def example(self, index: int, rng: np.random.Generator) -> MaskedExample:
        return mask_all(self.rows[index], rng, mask=self._mask, share=self._share)


def mask_tokens(
    document: Sequence[int],
    rng: np.random.Generator,
    *,
    mask: int,
    regular_ids: Sequence[int],
    share: float = 0.15,
) -> MaskedExample:
    """Corrupt a share of the tokens, at least one, as BERT does (Devlin et al., 2019, §3.1).

    80 % of them become `mask`, 10 % one of `regular_ids`, 10 % stay.

    Returns:
        The corrupted ids and the labels: the true id of each chosen token, IGNORE elsewhere.
    """
    ids, labels = list(document), [IGNORE] * len(document)
    for i in _choose(len(document), share, rng):
        labels[i] = document[i]
        fate = rng.random()
        if fate < 0.8:
            ids[i] = mask
        elif fate < 0.9:
            ids[i] = regular_ids[int(rng.integers(len(regular_ids)))]
    return ids, labels


def mask_all(
    document: Sequence[int], rng: np.random.Generator, *, mask: int, share: float
) -> MaskedExample:
    """Replace a share of the tokens, at least one, by `mask`, as a masked autoencoder does.

    Returns:
        The ids and the labels: the true id of each masked token, IGNORE elsewhere.
    """
    ids, labels = list(document), [IGNORE] * len(document)
    for i in _choose(len(document), share, rng):
        ids[i], labels[i] = mask, document[i]
    return ids, labels


def _choose(n: int, share: float, rng: np.random.Generator) -> list[int]:
    """Draw a share of n places, at least one."""
    chosen: list[int] = rng.permutation(n)[: max(1, round(share * n))].tolist()
    return chosen
