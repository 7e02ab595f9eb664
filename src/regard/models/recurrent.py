"""Recurrent models: cells and their layers, a decoder that predicts the next token, and an encoder.

Shapes: b rows, n tokens, d = d_model; d_out is d, or 2d where tokens are read both ways. A layer's
state has one part, its last output h, or two where it is an LSTM: h and the cells c. Rows may be
shorter than n: outputs of the padding after them are undefined, and it changes no state.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention.base import without_autocast
from regard.attention.state import RowState
from regard.dropout import Dropout
from regard.errors import UserError
from regard.models.config import RecurrentLayersConfig
from regard.models.tensors import Hidden, Lengths, TokenIds, TokenMask, require_fit

LayerStates: TypeAlias = Sequence[Float[Tensor, "parts b d_out"]]
"""The state of each layer."""


class LinearRNN(nn.Module):
    """h_t = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh: a `torch.nn.RNN` without its tanh.

    Parameters have the names, shapes and initialization of torch's, states the same shape.
    """

    def __init__(self, d_in: int, d: int) -> None:
        super().__init__()
        self.weight_ih_l0 = nn.Parameter(torch.empty(d, d_in))
        self.weight_hh_l0 = nn.Parameter(torch.empty(d, d))
        self.bias_ih_l0 = nn.Parameter(torch.empty(d))
        self.bias_hh_l0 = nn.Parameter(torch.empty(d))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / sqrt(d), 1 / sqrt(d))

    def forward(
        self, x: Float[Tensor, "b n d_in"], state: Float[Tensor, "1 b d"]
    ) -> tuple[Hidden, Float[Tensor, "1 b d"]]:
        """Return all states, and the last."""
        inputs = F.linear(x, self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)
        h, states = state[0], []
        for step in inputs.unbind(1):
            h = step + F.linear(h, self.weight_hh_l0)
            states.append(h)
        return torch.stack(states, 1), h[None]


class OutputLayer(nn.Module):
    """A layer whose state is its last output: vanilla cells and gated recurrent units."""

    def __init__(self, rnn: nn.RNN | nn.GRU | LinearRNN) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(
        self, x: Float[Tensor, "b n d_in"], state: Float[Tensor, "1 b d"], lengths: Lengths | None
    ) -> tuple[Hidden, Float[Tensor, "1 b d"]]:
        """Outputs, and the state after each row's last real token."""
        out, last = self.rnn(x, state.contiguous())
        if lengths is None:
            return out, last
        states = torch.cat([state[0][:, None], out], 1)
        return out, states[torch.arange(len(x), device=x.device), lengths][None]


class GatedLayer(OutputLayer):
    """A layer of gated recurrent units, which runs single tokens without `nn.GRU`'s copies."""

    rnn: nn.GRU

    def forward(
        self, x: Float[Tensor, "b n d_in"], state: Float[Tensor, "1 b d"], lengths: Lengths | None
    ) -> tuple[Hidden, Float[Tensor, "1 b d"]]:
        """Outputs, and the state after each row's last real token."""
        if x.shape[1] != 1 or lengths is not None:
            return super().forward(x, state, lengths)
        h = torch.gru_cell(x[:, 0], state[0], *self.rnn.all_weights[0])
        return h[:, None], h[None]


class CellLayer(nn.Module):
    """A layer of long short-term memory.

    Cells aren't among its outputs, so rows of unequal length are packed.
    """

    def __init__(self, rnn: nn.LSTM) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(
        self, x: Float[Tensor, "b n d_in"], state: Float[Tensor, "2 b d"], lengths: Lengths | None
    ) -> tuple[Hidden, Float[Tensor, "2 b d"]]:
        """Outputs, and the state after each row's last real token."""
        h, c = state.contiguous().split(1)
        if lengths is None:
            out, last = self.rnn(x, (h, c))
            return out, torch.cat(last)
        # torch packs no empty rows: give them a token, and keep their state.
        packed = pack_padded_sequence(
            x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        packed, last = self.rnn(packed, (h, c))
        out, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
        return out, torch.where(lengths[:, None] > 0, torch.cat(last), state)


class BothDirections(nn.Module):
    """Two layers, one forward and one backward from each row's last real token.

    Schuster & Paliwal, 1997. Outputs and states of both are concatenated.
    """

    def __init__(self, ahead: nn.Module, back: nn.Module) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back

    def forward(
        self,
        x: Float[Tensor, "b n d_in"],
        state: Float[Tensor, "parts b two_d"],
        lengths: Lengths | None,
    ) -> tuple[Float[Tensor, "b n two_d"], Float[Tensor, "parts b two_d"]]:
        """Outputs, and the states after the last token that each direction reads."""
        before, behind = state.chunk(2, -1)
        ahead, last = self.ahead(x, before, lengths)
        back, first = self.back(reverse(x, lengths), behind, lengths)
        return torch.cat([ahead, reverse(back, lengths)], -1), torch.cat([last, first], -1)


def reverse(x: Hidden, lengths: Lengths | None) -> Hidden:
    """Reverse the real tokens of each row; padding keeps its place."""
    if lengths is None:
        return x.flip(1)
    place = torch.arange(x.shape[1], device=x.device)
    mirrored = lengths[:, None] - 1 - place
    source = torch.where(mirrored < 0, place, mirrored)
    return x[torch.arange(len(x), device=x.device)[:, None], source]


class Recurrence(nn.Module):
    """A stack of recurrent layers, with dropout between them.

    Autocast is disabled: states are rounded at each step, and bfloat16 would lose small changes.
    """

    def __init__(self, config: RecurrentLayersConfig) -> None:
        super().__init__()
        self.d_out = config.d_model * (2 if config.bidirectional else 1)
        self.parts = 2 if config.cell == "lstm" else 1
        widths = [config.d_model] + [self.d_out] * (config.n_layers - 1)
        self.layers = nn.ModuleList(_make_layer(config, width) for width in widths)
        rates = [0.0] + [config.dropout] * (config.n_layers - 1)
        self.dropouts = nn.ModuleList(map(Dropout, rates))

    def init_state(self, batch: int) -> LayerStates:
        """Return the states before the first token: zeros."""
        weight = next(self.parameters())
        return [weight.new_zeros(self.parts, batch, self.d_out) for _ in self.layers]

    def forward(
        self,
        x: Hidden,
        states: LayerStates,
        lengths: Lengths | None = None,
    ) -> tuple[Float[Tensor, "b n d_out"], LayerStates]:
        """Return the outputs of the last layer, and all states after each row's last real token.

        Without `lengths`, all tokens are real.
        """
        lasts: list[Tensor] = []
        with without_autocast(x):
            for layer, dropout, state in zip(self.layers, self.dropouts, states, strict=True):
                x, last = layer(dropout(x), state.to(x.dtype), lengths)
                lasts.append(last)
        return x, lasts


def _make_layer(config: RecurrentLayersConfig, d_in: int) -> nn.Module:
    if config.bidirectional:
        return BothDirections(_make_direction(config, d_in), _make_direction(config, d_in))
    return _make_direction(config, d_in)


def _make_direction(config: RecurrentLayersConfig, d_in: int) -> nn.Module:
    d = config.d_model
    match config.cell, config.activation:
        case "vanilla", "tanh":  # Elman, 1990
            return OutputLayer(nn.RNN(d_in, d, batch_first=True))
        case "vanilla", _:
            return OutputLayer(LinearRNN(d_in, d))
        case "gru", _:  # Cho et al., 2014
            return GatedLayer(nn.GRU(d_in, d, batch_first=True))
        case _:  # Hochreiter & Schmidhuber, 1997
            return CellLayer(nn.LSTM(d_in, d, batch_first=True))


# Models


@dataclass(frozen=True, eq=False)
class RecurrentStates(RowState):
    """The states of all layers: the same size for any number of tokens."""

    layers: LayerStates
    length: Lengths
    """Number of tokens so far, per row."""

    def reorder(self, rows: Int[Tensor, " rows"]) -> "RecurrentStates":
        """The states of the given rows, in that order; a row may be taken several times."""
        return RecurrentStates([state[:, rows] for state in self.layers], self.length[rows])


class RecurrentDecoder(nn.Module):
    """Token ids → hidden states, each a function of its token and those before."""

    def __init__(self, config: RecurrentLayersConfig, vocabulary: int) -> None:
        """Build a decoder, which reads in one direction.

        Raises:
            UserError: the configuration is bidirectional.
        """
        super().__init__()
        if config.bidirectional:
            raise UserError(
                "bidirectional = true: a model that predicts the next token is causal; leave it out"
            )
        self.context_length, self.width = config.context_length, config.d_model
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.recurrence = Recurrence(config)

    def forward(self, input_ids: TokenIds, lengths: Lengths | None = None) -> Hidden:
        """Hidden states of whole rows; lengths are ignored: no token depends on later padding.

        Raises:
            ValueError: the rows are longer than the context.
        """
        hidden, _ = self.extend(input_ids, self.init_state(*input_ids.shape))
        return hidden

    def init_state(self, batch: int, capacity: int) -> RecurrentStates:
        """Return empty decoding states for at most `capacity` tokens.

        Raises:
            ValueError: `capacity` exceeds the context length.
        """
        require_fit(capacity, self.context_length)
        layers = self.recurrence.init_state(batch)
        length = torch.zeros(batch, dtype=torch.long, device=layers[0].device)
        return RecurrentStates(layers, length)

    def extend(
        self, input_ids: TokenIds, states: RecurrentStates, attention_mask: TokenMask | None = None
    ) -> tuple[Hidden, RecurrentStates]:
        """Hidden states of new tokens, after all tokens of the states.

        `attention_mask` is True for real new tokens, which come first in their row.
        """
        new = None if attention_mask is None else attention_mask.sum(1)
        hidden, layers = self.recurrence(
            self.dropout(self.embedding(input_ids)), states.layers, new
        )
        length = states.length + (input_ids.shape[1] if new is None else new)
        return hidden, RecurrentStates(layers, length)


class RecurrentEncoder(nn.Module):
    """Token ids → hidden states, each a function of all tokens of its row if bidirectional."""

    def __init__(self, config: RecurrentLayersConfig, vocabulary: int) -> None:
        super().__init__()
        self.context_length = config.context_length
        self.embedding = nn.Embedding(vocabulary, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.recurrence = Recurrence(config)
        self.width = self.recurrence.d_out

    def forward(
        self, input_ids: TokenIds, lengths: Lengths | None = None
    ) -> Float[Tensor, "b n d_out"]:
        """Hidden states of each row's first `lengths` tokens.

        Raises:
            ValueError: the rows are longer than the context.
        """
        hidden, _ = self.encode(input_ids, lengths)
        return hidden

    def encode(
        self, input_ids: TokenIds, lengths: Lengths | None
    ) -> tuple[Float[Tensor, "b n d_out"], LayerStates]:
        """Hidden states of each row's first `lengths` tokens, and the final states of all layers.

        Without `lengths`, all tokens are real.

        Raises:
            ValueError: the rows are longer than the context.
        """
        require_fit(input_ids.shape[1], self.context_length)
        x = self.dropout(self.embedding(input_ids))
        hidden, last = self.recurrence(x, self.recurrence.init_state(len(input_ids)), lengths)
        return hidden, last
