"""Recurrent layers: each state is a function of the one before and of the next input.

Shapes: b rows, n tokens, d = d_model. A layer's state has one part, its last output h, or two where
it is an LSTM: h and the cells c. Rows may be shorter than n: what stands beyond their lengths is
padding, its outputs mean nothing, and no state sees it.
"""

from math import sqrt
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.models.config_recurrent import RecurrentLayersConfig

Lengths: TypeAlias = Int[Tensor, " b"]
"""How many tokens of each row are real."""


class LinearRNN(nn.Module):
    """h_t = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh: a `torch.nn.RNN` without its tanh.

    Its parameters have the names, shapes and first values of torch's, and states are as there.
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
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "1 b d"]]:
        """All states, and the last."""
        inputs = F.linear(x, self.weight_ih_l0, self.bias_ih_l0 + self.bias_hh_l0)
        h, states = state[0], []
        for step in inputs.unbind(1):
            h = step + F.linear(h, self.weight_hh_l0)
            states.append(h)
        return torch.stack(states, 1), h[None]


class OutputLayer(nn.Module):
    """A layer whose state is its last output, as of vanilla cells and gated recurrent units."""

    def __init__(self, rnn: nn.RNN | nn.GRU | LinearRNN) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(
        self, x: Float[Tensor, "b n d_in"], state: Float[Tensor, "1 b d"], lengths: Lengths | None
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "1 b d"]]:
        """Outputs, and the state after each row's last real token."""
        out, last = self.rnn(x, state.contiguous())
        if lengths is None:
            return out, last
        states = torch.cat([state[0][:, None], out], 1)
        return out, states[torch.arange(len(x), device=x.device), lengths][None]


class CellLayer(nn.Module):
    """A layer of long short-term memory.

    Its outputs don't show the cells, so that rows of unequal length must be run as such.
    """

    def __init__(self, rnn: nn.LSTM) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(
        self, x: Float[Tensor, "b n d_in"], state: Float[Tensor, "2 b d"], lengths: Lengths | None
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "2 b d"]]:
        """Outputs, and the state after each row's last real token."""
        h, c = state.contiguous().split(1)
        if lengths is None:
            out, last = self.rnn(x, (h, c))
            return out, torch.cat(last)
        # torch packs no empty row: it gets a token, and keeps its state.
        packed = pack_padded_sequence(
            x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        packed, last = self.rnn(packed, (h, c))
        out, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
        return out, torch.where(lengths[:, None] > 0, torch.cat(last), state)


class BothDirections(nn.Module):
    """Two layers side by side, of which one reads each row from its last real token.

    Schuster & Paliwal, 1997. The outputs of both are concatenated, and so are their states.
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


def reverse(x: Float[Tensor, "b n d"], lengths: Lengths | None) -> Float[Tensor, "b n d"]:
    """The real tokens of each row the other way round, its padding where it was."""
    if lengths is None:
        return x.flip(1)
    place = torch.arange(x.shape[1], device=x.device)
    mirrored = lengths[:, None] - 1 - place
    source = torch.where(mirrored < 0, place, mirrored)
    return x[torch.arange(len(x), device=x.device)[:, None], source]


class Recurrence(nn.Module):
    """A stack of recurrent layers, with dropout between them.

    Autocast doesn't reach them: a state is rounded at each step, and in bfloat16 what changes it a
    little would never change it at all.
    """

    def __init__(self, config: RecurrentLayersConfig) -> None:
        super().__init__()
        self.d_out = config.d_model * (2 if config.bidirectional else 1)
        self.parts = 2 if config.cell == "lstm" else 1
        widths = [config.d_model] + [self.d_out] * (config.n_layers - 1)
        self.layers = nn.ModuleList(_make_layer(config, width) for width in widths)
        self.dropout = nn.Dropout(config.dropout)

    def start(self, batch: int) -> Float[Tensor, "layers parts b d_out"]:
        """The states before the first token: zero."""
        weight = next(self.parameters())
        return weight.new_zeros(len(self.layers), self.parts, batch, self.d_out)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        states: Float[Tensor, "layers parts b d_out"],
        lengths: Lengths | None = None,
    ) -> tuple[Float[Tensor, "b n d_out"], Float[Tensor, "layers parts b d_out"]]:
        """The last layer's outputs, and all layers' states after each row's last real token.

        Without `lengths`, all tokens are real.
        """
        lasts: list[Tensor] = []
        with torch.autocast(x.device.type, enabled=False):
            for layer, state in zip(self.layers, states.to(x.dtype), strict=True):
                x, last = layer(self.dropout(x) if lasts else x, state, lengths)
                lasts.append(last)
        return x, torch.stack(lasts)


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
            return OutputLayer(nn.GRU(d_in, d, batch_first=True))
        case _:  # Hochreiter & Schmidhuber, 1997
            return CellLayer(nn.LSTM(d_in, d, batch_first=True))
