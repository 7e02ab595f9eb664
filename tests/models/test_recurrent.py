"""Recurrent decoder and encoder: states, batches and padding change nothing."""

import pytest
import torch

from regard.errors import UserError
from regard.models.recurrent import RecurrentDecoder, RecurrentEncoder
from tiny_recurrent import BLOCK, CELLS, VOCABULARY, close, sharp, tiny_config

EVERY_CELL = pytest.mark.parametrize("cell", CELLS)


def tiny_decoder(cell: str) -> RecurrentDecoder:
    return sharp(RecurrentDecoder(tiny_config(**CELLS[cell]), VOCABULARY))


def tiny_encoder(cell: str, *, bidirectional: bool) -> RecurrentEncoder:
    config = tiny_config(**CELLS[cell], bidirectional=bidirectional)
    return sharp(RecurrentEncoder(config, VOCABULARY))


# The decoder


@EVERY_CELL
def test_its_states_do_not_grow(cell: str) -> None:
    model = tiny_decoder(cell)
    states = model.init_state(2, BLOCK)
    _, later = model.extend(torch.ones(2, BLOCK, dtype=torch.long), states)
    parts = 2 if cell == "lstm" else 1
    # Two layers of two rows of width 6 in float64, and two lengths.
    assert later.bytes == states.bytes == 8 * (2 * parts * 2 * 6 + 2)


def test_a_decoder_does_not_read_from_the_end() -> None:
    with pytest.raises(UserError, match=r"bidirectional = true: .* is causal"):
        RecurrentDecoder(tiny_config(bidirectional=True), VOCABULARY)


# The encoder


@EVERY_CELL
@torch.no_grad()
def test_in_one_direction_an_encoder_is_a_decoder(cell: str) -> None:
    encoder, decoder = tiny_encoder(cell, bidirectional=False), tiny_decoder(cell)
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    hidden, last = encoder.encode(ids, torch.tensor([4, 4]))
    expected, states = decoder.extend(ids, decoder.init_state(2, 4))
    assert close(hidden, expected)
    assert close(torch.stack([*last]), torch.stack([*states.layers]))
