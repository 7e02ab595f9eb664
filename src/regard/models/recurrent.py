"""Recurrent models: a decoder that predicts the next token, and an encoder.

Shapes: b rows, n tokens, d = d_model; d_out is d, or 2d where tokens are read both ways.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import UserError
from regard.models.config_recurrent import RecurrentLayersConfig
from regard.models.recurrence import Recurrence


@dataclass(frozen=True, eq=False)
class RecurrentStates:
    """The states of all layers: the same size for any number of tokens."""

    layers: Float[Tensor, "layers parts b d"]
    length: Int[Tensor, " b"]
    """How many tokens each row has seen."""

    @property
    def bytes(self) -> int:
        """Size of all tensors."""
        return self.layers.nbytes + self.length.nbytes

    def select(self, rows: Int[Tensor, " rows"]) -> "RecurrentStates":
        """The states of the given rows, in that order; a row may be taken several times."""
        return RecurrentStates(self.layers[:, :, rows], self.length[rows])


class RecurrentDecoder(nn.Module):
    """Token ids → hidden states, each a function of its token and those before."""

    def __init__(self, config: RecurrentLayersConfig, vocabulary: int) -> None:
        """A decoder in one direction.

        Raises:
            UserError: the configuration is bidirectional.
        """
        super().__init__()
        if config.bidirectional:
            raise UserError(
                "bidirectional = true: what predicts the next token must not see it; leave it out"
            )
        self.block, self.width = config.block, config.d_model
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.recurrence = Recurrence(config)

    def forward(
        self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"] | None = None
    ) -> Float[Tensor, "b n d"]:
        """Hidden states of whole rows; lengths change nothing: no token looks at their padding.

        Raises:
            ValueError: the rows are longer than the block.
        """
        hidden, _ = self.extend(ids, self.start(*ids.shape))
        return hidden

    def start(self, batch: int, capacity: int) -> RecurrentStates:
        """The states before the first of at most `capacity` tokens.

        Raises:
            ValueError: that is more than the block.
        """
        require_fit(capacity, self.block)
        layers = self.recurrence.start(batch)
        return RecurrentStates(layers, torch.zeros(batch, dtype=torch.long, device=layers.device))

    def extend(
        self,
        ids: Int[Tensor, "b n"],
        states: RecurrentStates,
        keep: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b n d"], RecurrentStates]:
        """Hidden states of new tokens, after all that the states have seen.

        `keep` says which new tokens are real; they come first in their row.
        """
        new = None if keep is None else keep.sum(1)
        hidden, layers = self.recurrence(self.dropout(self.embedding(ids)), states.layers, new)
        length = states.length + (ids.shape[1] if new is None else new)
        return hidden, RecurrentStates(layers, length)

    def select(self, states: RecurrentStates, rows: Int[Tensor, " rows"]) -> RecurrentStates:
        """The states of some rows, in their order; the given ones are used up."""
        return states.select(rows)


class RecurrentEncoder(nn.Module):
    """Token ids → hidden states, each a function of all tokens where it reads both ways."""

    def __init__(self, config: RecurrentLayersConfig, vocabulary: int) -> None:
        super().__init__()
        self.block = config.block
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.recurrence = Recurrence(config)
        self.width = self.recurrence.d_out

    def forward(
        self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"] | None = None
    ) -> Float[Tensor, "b n d_out"]:
        """Hidden states of each row's first `lengths` tokens.

        Raises:
            ValueError: the rows are longer than the block.
        """
        whole = torch.full((len(ids),), ids.shape[1], device=ids.device)
        hidden, _ = self.encode(ids, whole if lengths is None else lengths)
        return hidden

    def encode(
        self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b n d_out"], Float[Tensor, "layers parts b d_out"]]:
        """Hidden states of each row's first `lengths` tokens, and the final states of all layers.

        Raises:
            ValueError: the rows are longer than the block.
        """
        require_fit(ids.shape[1], self.block)
        x = self.dropout(self.embedding(ids))
        hidden, last = self.recurrence(x, self.recurrence.start(len(ids)), lengths)
        return hidden, last


def require_fit(tokens: int, block: int) -> None:
    """Refuse more tokens than a block.

    Raises:
        ValueError: names both.
    """
    if tokens > block:
        raise ValueError(f"{tokens} tokens don't fit the model's block of {block}")
