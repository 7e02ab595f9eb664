"""Examples side by side in tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.text.objectives import IGNORE, Example
from regard.text.vocabulary import PAD


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of ids and, for each position, the label to predict there."""

    ids: Int[Tensor, "rows n"]
    labels: Int[Tensor, "rows n"]
    """The next token, or IGNORE."""

    @property
    def n_targets(self) -> int:
        """Positions that carry loss."""
        return int((self.labels != IGNORE).sum())

    def split(self, parts: int) -> list["Batch"]:
        """The rows in `parts` batches of nearly equal size, by length, without needless padding."""
        if parts == 1:
            return [self]
        lengths = self._lengths()
        order = lengths.argsort(stable=True)
        return [
            Batch(self.ids[rows, :longest], self.labels[rows, :longest])
            for rows in order.tensor_split(parts)
            if len(rows) and (longest := int(lengths[rows[-1]]))
        ]

    def _lengths(self) -> Int[Tensor, " rows"]:
        """Of the rows, without the padding at their ends."""
        count = torch.arange(1, self.ids.shape[1] + 1, device=self.ids.device)
        return torch.where(self.ids == PAD, 0, count).amax(1)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(self.ids.to(device), self.labels.to(device))


def pad_rows(rows: Sequence[Sequence[int]], value: int = PAD) -> Int[Tensor, "rows longest"]:
    """Rows of unequal length, filled up at their ends."""
    longest = max(len(row) for row in rows)
    filled = [[*row, *[value] * (longest - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long)


def make_batch(examples: Sequence[Example], block: int) -> Batch:
    """Pad and truncate examples to at most `block` positions."""
    ids = [example.ids[: block + 1] for example in examples]
    labels = [
        [token if target else IGNORE for token, target in zip(row, example.targets, strict=False)]
        for row, example in zip(ids, examples, strict=True)
    ]
    return Batch(pad_rows([row[:-1] for row in ids]), pad_rows([row[1:] for row in labels], IGNORE))
