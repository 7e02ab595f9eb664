"""Recurrent layers: torch's own with packed rows are the oracle; without tanh, the formula is."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.models.config import RecurrentConfig
from regard.models.recurrent import LinearRNN, Recurrence, reverse
from tiny_recurrent import CELLS, close, normal, sharp, tiny_config

ORACLES = {"vanilla": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
EVERY_CELL = pytest.mark.parametrize("cell", CELLS)
BOTH = pytest.mark.parametrize("bidirectional", [False, True])
D = 6

checked = settings(deadline=None, derandomize=True, max_examples=20)
some_lengths = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def tiny(cell: str, *, bidirectional: bool = False) -> Recurrence:
    return sharp(Recurrence(tiny_config(**CELLS[cell], bidirectional=bidirectional)))


# The oracle


def oracle(recurrence: Recurrence, config: RecurrentConfig) -> nn.Module:
    """torch's stack of layers, with the same weights."""
    stack: nn.Module = ORACLES[config.cell](
        D, D, config.n_layers, batch_first=True, bidirectional=config.bidirectional
    ).double()
    renamed = {}
    for name, weight in recurrence.state_dict().items():
        place, _, short = name.partition(".rnn.")
        layer = place.split(".")[1]
        ending = "_reverse" if place.endswith(".back") else ""
        renamed[short.replace("_l0", f"_l{layer}{ending}")] = weight
    stack.load_state_dict(renamed)
    return stack


def packed(states: Tensor, directions: int) -> Tensor:
    """(layers, b, directions·d) as torch has it: (layers·directions, b, d)."""
    by_direction: Tensor = states.unflatten(-1, (directions, D))
    return by_direction.movedim(2, 1).flatten(0, 1).contiguous()


def random_states(recurrence: Recurrence, rows: int) -> Tensor:
    """Return states of all layers, (layers, parts, rows, width)."""
    return normal(*torch.stack([*recurrence.init_state(rows)]).shape, seed=1)


def stacked(
    recurrence: Recurrence, x: Tensor, states: Any, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the outputs, and the last states of all layers as one tensor."""
    out, last = recurrence(x, states, lengths)
    return out, torch.stack([*last])


@BOTH
@pytest.mark.parametrize("cell", ORACLES)
@checked
@given(lengths=some_lengths)
@torch.no_grad()
def test_it_is_torch_s_of_packed_rows(lengths: list[int], cell: str, bidirectional: bool) -> None:
    config = tiny_config(cell=cell, bidirectional=bidirectional)
    recurrence = sharp(Recurrence(config))
    directions, rows, real = 1 + bidirectional, len(lengths), torch.tensor(lengths)
    x, states = normal(rows, max(lengths), D), random_states(recurrence, rows)
    out, last = stacked(recurrence, x, states, real)

    together = pack_padded_sequence(x, real, batch_first=True, enforce_sorted=False)
    first = [packed(part, directions) for part in states.unbind(1)]
    expected, finals = oracle(recurrence, config)(
        together, tuple(first) if cell == "lstm" else first[0]
    )
    expected, _ = pad_packed_sequence(expected, batch_first=True)
    there = torch.arange(max(lengths)) < real[:, None]
    assert close(out[there], expected[there])
    for part, final in zip(last.unbind(1), finals if cell == "lstm" else [finals], strict=True):
        assert close(packed(part, directions), final)


@EVERY_CELL
@checked
@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=4))
@torch.no_grad()
def test_a_row_without_tokens_keeps_its_state(lengths: list[int], cell: str) -> None:
    recurrence, rows = tiny(cell), len(lengths)
    states, real = random_states(recurrence, rows), torch.tensor(lengths)
    _, last = stacked(recurrence, normal(rows, 7, D, seed=1), states, real)
    kept = (last == states).all(-1).all(0).all(0)
    assert torch.equal(kept, real == 0)


@EVERY_CELL
def test_autocast_does_not_reach_the_states(cell: str) -> None:
    recurrence, x = tiny(cell).float(), normal(2, 5, D).float()
    with torch.no_grad():
        plain, _ = recurrence(x, recurrence.init_state(2))
        with torch.autocast("cpu", torch.bfloat16):
            cast, _ = recurrence(x, recurrence.init_state(2))
    assert cast.dtype == torch.float32
    # Exact: the same operations on the same shapes.
    assert torch.equal(cast, plain)


# Without tanh


def test_the_linear_network_begins_as_torch_s_begins() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours = LinearRNN(3, 4).state_dict()
        torch.manual_seed(0)
        theirs = nn.RNN(3, 4).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@torch.no_grad()
def test_the_linear_network_is_the_formula() -> None:
    rnn, x, h = sharp(LinearRNN(3, 4)), normal(2, 7, 3), normal(2, 4, seed=1)
    out, last = rnn(x, h[None])
    for t in range(7):
        h = x[:, t] @ rnn.weight_ih_l0.T + rnn.bias_ih_l0 + h @ rnn.weight_hh_l0.T + rnn.bias_hh_l0
        assert close(out[:, t], h)
    assert torch.equal(last[0], out[:, -1])


# The way back


@checked
@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_reversing_turns_real_tokens_and_leaves_padding(lengths: list[int]) -> None:
    x, real = normal(len(lengths), 7, 2), torch.tensor(lengths)
    turned = reverse(x, real)
    for row, n in enumerate(lengths):
        assert torch.equal(turned[row, :n], x[row, :n].flip(0))
        assert torch.equal(turned[row, n:], x[row, n:])
    assert torch.equal(reverse(turned, real), x)
