"""Masked language modeling: tokens are predicted from both sides."""

from collections.abc import Callable, Sequence

import numpy as np

from regard.data import IGNORE
from regard.data.batch import Batch, Dataset, RowFormat

Corrupt = Callable[[Sequence[int], np.random.Generator], tuple[list[int], list[int]]]
"""Returns corrupted ids and their labels."""
MaskedExample = tuple[Sequence[int], Sequence[int], Sequence[int] | None]
"""Ids, labels, and token types if the model has embeddings of them."""


class MaskedTokens(Dataset):
    """Texts with a random share of their tokens masked or replaced, drawn each time."""

    def __init__(
        self,
        texts: Sequence[Sequence[int]],
        format: RowFormat,
        corrupt: Corrupt,
        token_type_ids: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`corrupt` is `mask_tokens` or `mask_all` with its options."""
        super().__init__(texts, format)
        self._corrupt, self._token_type_ids = corrupt, token_type_ids

    def example(self, index: int, rng: np.random.Generator) -> MaskedExample:
        types = None if self._token_type_ids is None else self._token_type_ids[index]
        return (*self._corrupt(self.rows[index], rng), types)

    def collate(self, examples: Sequence[MaskedExample]) -> Batch:
        ids, labels, types = zip(*examples, strict=True)
        inputs = {"input_ids": self.format.input_ids(ids)}
        if self._token_type_ids is not None:
            inputs["token_type_ids"] = self.format.aligned(types, 0)
        return Batch(inputs, self.format.aligned(labels, IGNORE).ids)


def mask_tokens(
    document: Sequence[int],
    rng: np.random.Generator,
    *,
    mask: int,
    regular_ids: Sequence[int],
    share: float = 0.15,
) -> tuple[list[int], list[int]]:
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
) -> tuple[list[int], list[int]]:
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
