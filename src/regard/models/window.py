"""The neural language model of a fixed window (Bengio et al., 2003).

Shapes: b rows, n tokens, d = d_model, s = size of the window.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.models.config_recurrent import WindowConfig
from regard.text.vocabulary import PAD


@dataclass(frozen=True, eq=False)
class WindowStates:
    """The tokens that the next window shares with the last, □ before the beginning."""

    ids: Int[Tensor, "b s_less_1"]
    length: Int[Tensor, " b"]
    """How many tokens each row has seen."""

    @property
    def bytes(self) -> int:
        """Size of all tensors."""
        return self.ids.nbytes + self.length.nbytes

    def select(self, rows: Int[Tensor, " rows"]) -> "WindowStates":
        """The states of the given rows, in that order; a row may be taken several times."""
        return WindowStates(self.ids[rows], self.length[rows])


class WindowDecoder(nn.Module):
    """Token ids → hidden states, each a function of the last `size` tokens.

    Eq. 1 of the paper, up to the vocabulary: tanh(d + Hx) of the concatenated embeddings x, here
    mapped to width d_model for the head, and without direct connections from x to the output.
    """

    def __init__(self, config: WindowConfig, vocabulary: int) -> None:
        super().__init__()
        self.block, self.size, self.width = config.block, config.size, config.d_model
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.hidden = nn.Linear(config.size * config.d_model, config.d_hidden)
        self.project_out = nn.Linear(config.d_hidden, config.d_model)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"] | None = None
    ) -> Float[Tensor, "b n d"]:
        """Hidden states of whole rows; lengths change nothing: no token looks at their padding.

        Raises:
            ValueError: the rows are longer than the block.
        """
        hidden, _ = self.extend(ids, self.start(*ids.shape))
        return hidden

    def start(self, batch: int, capacity: int) -> WindowStates:
        """The states before the first of at most `capacity` tokens.

        Raises:
            ValueError: that is more than the block.
        """
        if capacity > self.block:
            raise ValueError(f"{capacity} tokens don't fit the model's block of {self.block}")
        device = self.embedding.weight.device
        ids = torch.full((batch, self.size - 1), PAD, device=device)
        return WindowStates(ids, torch.zeros(batch, dtype=torch.long, device=device))

    def extend(
        self, ids: Int[Tensor, "b n"], states: WindowStates, keep: Bool[Tensor, "b n"] | None = None
    ) -> tuple[Float[Tensor, "b n d"], WindowStates]:
        """Hidden states of new tokens, after all that the states have seen.

        `keep` says which new tokens are real; they come first in their row.
        """
        seen = torch.cat([states.ids, ids], 1)
        windows = self.dropout(self.embedding(seen)).unfold(1, self.size, 1).transpose(2, 3)
        hidden = self.dropout(self.hidden(windows.flatten(2)).tanh())
        new = torch.full_like(states.length, ids.shape[1]) if keep is None else keep.sum(1)
        # Of s - 1 old tokens and k new ones, those from k on are the last s - 1.
        last = new[:, None] + torch.arange(self.size - 1, device=ids.device)
        return self.project_out(hidden), WindowStates(seen.gather(1, last), states.length + new)

    def select(self, states: WindowStates, rows: Int[Tensor, " rows"]) -> WindowStates:
        """The states of some rows, in their order; the given ones are used up."""
        return states.select(rows)
