"""Recurrent decoder and encoder: states, batches and padding change nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.dropout import Dropout
from regard.errors import UserError
from regard.models.recurrent import RecurrentDecoder, RecurrentEncoder
from tiny_recurrent import (
    BLOCK,
    CELLS,
    VOCABULARY,
    Conversation,
    batches,
    close,
    conversations,
    joined,
    last_hidden,
    padded,
    sharp,
    texts,
    tiny_config,
    tokens,
)

EVERY_CELL = pytest.mark.parametrize("cell", CELLS)
BOTH = pytest.mark.parametrize("bidirectional", [False, True])
checked = settings(deadline=None, derandomize=True, max_examples=15)


def tiny_decoder(cell: str) -> RecurrentDecoder:
    return sharp(RecurrentDecoder(tiny_config(**CELLS[cell]), VOCABULARY))


def tiny_encoder(cell: str, *, bidirectional: bool) -> RecurrentEncoder:
    config = tiny_config(**CELLS[cell], bidirectional=bidirectional)
    return sharp(RecurrentEncoder(config, VOCABULARY))


# The decoder


@EVERY_CELL
@checked
@given(conversation=conversations())
@torch.no_grad()
def test_states_batches_and_padding_change_no_hidden_state(
    conversation: Conversation, cell: str
) -> None:
    model = tiny_decoder(cell)
    found = last_hidden(model, model.init_state(len(conversation), BLOCK), conversation)
    for turn, hidden in enumerate(found):
        for row, turns in enumerate(conversation):
            alone = model(torch.tensor([joined(turns[: turn + 1])]))
            assert close(hidden[row], alone[0, -1])


@EVERY_CELL
@checked
@given(text=texts)
@torch.no_grad()
def test_one_by_one_is_all_at_once(text: list[int], cell: str) -> None:
    model, ids = tiny_decoder(cell), torch.tensor([text])
    turns = [[[token] for token in text]]
    assert close(torch.cat(last_hidden(model, model.init_state(1, BLOCK), turns)), model(ids)[0])


@EVERY_CELL
@checked
@given(text=texts, data=st.data())
@torch.no_grad()
def test_the_future_changes_no_bit_of_the_past(
    text: list[int], data: st.DataObject, cell: str
) -> None:
    model, past = tiny_decoder(cell), data.draw(st.integers(0, len(text)))
    left = len(text) - past
    other = text[:past] + data.draw(st.lists(tokens, min_size=left, max_size=left))
    one, two = (model(torch.tensor([ids]))[0, :past] for ids in (text, other))
    # Exact: the shapes are the same, and each state is made of those before it.
    assert torch.equal(one, two)


@EVERY_CELL
@torch.no_grad()
def test_states_can_be_reordered_and_repeated(cell: str) -> None:
    model, rows = tiny_decoder(cell), torch.tensor([2, 0, 0])
    ids, lengths = padded([[1, 2, 3], [4], [5, 6]])
    keep = torch.arange(3) < lengths[:, None]
    _, states = model.extend(ids, model.init_state(3, BLOCK), keep)
    assert states.length.tolist() == [3, 1, 2]
    more = torch.tensor([[7], [8], [9]])
    chosen, after = model.extend(more[rows], states.reorder(rows))
    hidden, _ = model.extend(more, states)
    assert close(chosen, hidden[rows])
    assert after.length.tolist() == [3, 4, 4]


@EVERY_CELL
def test_its_states_do_not_grow(cell: str) -> None:
    model = tiny_decoder(cell)
    states = model.init_state(2, BLOCK)
    _, later = model.extend(torch.ones(2, BLOCK, dtype=torch.long), states)
    parts = 2 if cell == "lstm" else 1
    # Two layers of two rows of width 6 in float64, and two lengths.
    assert later.bytes == states.bytes == 8 * (2 * parts * 2 * 6 + 2)


def test_more_than_the_block_is_refused() -> None:
    model, reason = tiny_decoder("gru"), f"{BLOCK + 1} tokens don't fit the model's context length"
    long = torch.zeros(1, BLOCK + 1, dtype=torch.long)
    with pytest.raises(ValueError, match=reason):
        model.init_state(1, BLOCK + 1)
    with pytest.raises(ValueError, match=reason):
        model(long)
    with pytest.raises(ValueError, match=reason):
        tiny_encoder("gru", bidirectional=True)(long, torch.tensor([BLOCK]))


def test_a_decoder_does_not_read_from_the_end() -> None:
    with pytest.raises(UserError, match=r"bidirectional = true: .* is causal"):
        RecurrentDecoder(tiny_config(bidirectional=True), VOCABULARY)


def test_dropout_is_on_embeddings_and_between_layers_in_training_alone() -> None:
    model = sharp(RecurrentDecoder(tiny_config(dropout=0.5), VOCABULARY))
    ids, calls = torch.tensor([[1, 2, 3, 4]]), []
    for name, module in model.named_modules():
        if isinstance(module, Dropout) and module.p:
            module.register_forward_hook(lambda *_, name=name: calls.append(name))
    # Exact: the same operations on the same shapes.
    assert torch.equal(model(ids), tiny_decoder("gru")(ids))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model.train()
        assert not torch.allclose(model(ids), model(ids))
    assert calls == ["dropout", "recurrence.dropouts.1"] * 3


# The encoder


@BOTH
@EVERY_CELL
@checked
@given(rows=batches, padding=tokens, data=st.data())
@torch.no_grad()
def test_an_encoder_s_rows_know_nothing_of_one_another_nor_of_padding(
    rows: list[list[int]], padding: int, data: st.DataObject, cell: str, bidirectional: bool
) -> None:
    model = tiny_encoder(cell, bidirectional=bidirectional)
    order = data.draw(st.permutations(range(len(rows))))
    hidden, last = model.encode(*padded([rows[row] for row in order], padding=padding))
    for place, row in enumerate(order):
        n = len(rows[row])
        alone, alone_last = model.encode(torch.tensor([rows[row]]), torch.tensor([n]))
        assert close(hidden[place, :n], alone[0])
        for state, alone_state in zip(last, alone_last, strict=True):
            assert close(state[:, place], alone_state[:, 0])


@EVERY_CELL
@torch.no_grad()
def test_in_one_direction_an_encoder_is_a_decoder(cell: str) -> None:
    encoder, decoder = tiny_encoder(cell, bidirectional=False), tiny_decoder(cell)
    ids = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    hidden, last = encoder.encode(ids, torch.tensor([4, 4]))
    expected, states = decoder.extend(ids, decoder.init_state(2, 4))
    assert close(hidden, expected)
    assert close(torch.stack([*last]), torch.stack([*states.layers]))


@EVERY_CELL
@torch.no_grad()
def test_every_token_matters_to_every_state_where_both_directions_are_read(cell: str) -> None:
    model, text = tiny_encoder(cell, bidirectional=True), [3, 1, 4, 1, 5]
    lengths = torch.tensor([5])
    hidden = model(torch.tensor([text]), lengths)
    for place in range(5):
        other = model(torch.tensor([[*text[:place], 7, *text[place + 1 :]]]), lengths)
        assert bool(((other - hidden).abs().amax(-1) > 1e-10).all())
