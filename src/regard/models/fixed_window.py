"""Neural language model with a fixed window (Bengio et al., 2003).

Shapes: b rows, n tokens, d = d_model, s = size of the window.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.state import RowState
from regard.dropout import Dropout
from regard.models.config import FixedWindowConfig
from regard.models.tensors import Hidden, Lengths, TokenIds, TokenMask, require_fit


@dataclass(frozen=True, eq=False)
class FixedWindowStates(RowState):
    """The last s − 1 tokens, which the next window includes; token 0 before the first."""

    input_ids: Int[Tensor, "b s_less_1"]
    length: Lengths
    """Number of tokens so far, per row."""


class FixedWindowDecoder(nn.Module):
    """Token ids → hidden states, each a function of the last `size` tokens.

    Eq. 1 of the paper, up to the vocabulary: tanh(d + Hx) of the concatenated embeddings x, here
    mapped to width d_model for the head, and without direct connections from x to the output.
    """

    def __init__(self, config: FixedWindowConfig, vocabulary: int) -> None:
        super().__init__()
        self.context_length, self.width = config.context_length, config.d_model
        self.size = config.size
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.hidden = nn.Linear(config.size * config.d_model, config.d_hidden)
        self.o_proj = nn.Linear(config.d_hidden, config.d_model)
        self.dropout_embedding = Dropout(config.dropout)
        self.dropout_hidden = Dropout(config.dropout)

    def forward(self, input_ids: TokenIds, lengths: Lengths | None = None) -> Hidden:
        """Hidden states of whole rows; lengths are ignored: no token depends on later padding.

        Raises:
            ValueError: the rows are longer than the context.
        """
        hidden, _ = self.extend(input_ids, self.init_state(*input_ids.shape))
        return hidden

    def init_state(self, batch: int, capacity: int) -> FixedWindowStates:
        """Return empty decoding states for at most `capacity` tokens.

        Raises:
            ValueError: `capacity` exceeds the context length.
        """
        require_fit(capacity, self.context_length)
        device = self.embedding.weight.device
        input_ids = torch.zeros((batch, self.size - 1), dtype=torch.long, device=device)
        return FixedWindowStates(input_ids, torch.zeros(batch, dtype=torch.long, device=device))

    def extend(
        self,
        input_ids: TokenIds,
        states: FixedWindowStates,
        attention_mask: TokenMask | None = None,
    ) -> tuple[Hidden, FixedWindowStates]:
        """Hidden states of new tokens, after all tokens of the states.

        `attention_mask` is True for real new tokens, which come first in their row.
        """
        seen = torch.cat([states.input_ids, input_ids], 1)
        embedded = self.dropout_embedding(self.embedding(seen))
        windows = embedded.unfold(1, self.size, 1).transpose(2, 3)
        hidden = self.dropout_hidden(self.hidden(windows.flatten(2)).tanh())
        new = (
            torch.full_like(states.length, input_ids.shape[1])
            if attention_mask is None
            else attention_mask.sum(1)
        )
        # Of s - 1 old tokens and k new ones, the last s - 1 begin at k.
        last = new[:, None] + torch.arange(self.size - 1, device=input_ids.device)
        return self.o_proj(hidden), FixedWindowStates(seen.gather(1, last), states.length + new)
