"""Padded rows, and decoding states as the cache of transformers' `generate`.

Shapes: b rows, n tokens, p tokens that the state has seen, d the width of the body. Padding may be
on either side of a row, given by the attention mask.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import UserError

InputIds = Int[Tensor, "b n"]
AttentionMask = Int[Tensor, "b p_plus_n"]
"""1 for real tokens, 0 for padding, including the columns already in the state."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Permutation of padded rows that puts real tokens first, as Regard's models require."""

    places: Int[Tensor, "b n"]
    """Source column of each token."""
    lengths: Int[Tensor, " b"]

    @staticmethod
    def of(ids: InputIds, attention_mask: AttentionMask | None) -> "Rows":
        """Find the real tokens; without a mask, all are. Only the mask's last n columns count."""
        if attention_mask is None:
            whole = torch.full((len(ids),), ids.shape[1], device=ids.device)
            return Rows(torch.arange(ids.shape[1], device=ids.device).expand_as(ids), whole)
        if attention_mask.ndim != 2:
            raise UserError("attention_mask: must have a row per text and a column per token")
        real = attention_mask[:, -ids.shape[1] :].bool()
        return Rows((~real).int().argsort(dim=1, stable=True), real.sum(1))

    @property
    def mask(self) -> Bool[Tensor, "b longest"] | None:
        """Mask of real tokens, which come first; None if all are real."""
        if int(self.lengths.min()) == self.longest:
            return None
        return torch.arange(self.longest, device=self.places.device) < self.lengths[:, None]

    @property
    def longest(self) -> int:
        """Number of real tokens of the longest row, at least one."""
        return max(int(self.lengths.max()), 1)

    def compact(self, x: Int[Tensor, "b n"]) -> Int[Tensor, "b longest"]:
        """Move the real tokens first, without columns of only padding."""
        return x.gather(1, self.places)[:, : self.longest]

    def restore(self, hidden: Float[Tensor, "b longest d"]) -> Float[Tensor, "b n d"]:
        """Move vectors back to their tokens' columns; padding after them repeats the last one.

        So the last column is that of the last token, from which transformers generates.
        """
        last = (self.lengths - 1).clamp(min=0)
        columns = self.places.argsort(1).minimum(last[:, None])
        return hidden.gather(1, columns[:, :, None].expand(-1, -1, hidden.shape[2]))


class DecodingCache:
    """The decoding states of a model, with the cache interface of transformers' `generate`."""

    is_compileable = False
    is_croppable = False

    def __init__(self, capacity: int) -> None:
        """Prepare for at most `capacity` tokens per row; the first tokens create the states."""
        self.capacity, self.columns = capacity, 0
        self.states: Any = None

    def get_seq_length(self, layer: int = 0) -> int:
        """Return the number of columns seen, including padding."""
        return self.columns

    def reorder_cache(self, beam_idx: Int[Tensor, " rows"]) -> None:
        """Select rows; one may be taken several times."""
        self.states = self.states.reorder(beam_idx)

    def extend(
        self, body: Any, input_ids: InputIds, attention_mask: AttentionMask | None
    ) -> Float[Tensor, "b n d"]:
        """Return the hidden states of new tokens.

        Raises:
            UserError: a row has more tokens than the states have capacity for.
        """
        rows = Rows.of(input_ids, attention_mask)
        longest = int((self.states.length + rows.lengths).max())
        if longest > self.capacity:
            raise UserError(
                f"{longest} tokens don't fit: the model's context and max_length allow "
                f"{self.capacity}; shorten the prompt or lower max_new_tokens"
            )
        hidden, self.states = body.extend(rows.compact(input_ids), self.states, rows.mask)
        self.columns += input_ids.shape[1]
        return rows.restore(hidden)
