"""The fixed-window model: the paper's formula, spelled out; states, batches and padding."""

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from regard.models.config import FixedWindowConfig
from regard.models.fixed_window import FixedWindowDecoder
from tiny import PAD
from tiny_recurrent import (
    BLOCK,
    VOCABULARY,
    Conversation,
    close,
    conversations,
    joined,
    last_hidden,
    padded,
    sharp,
    texts,
)

SIZES = pytest.mark.parametrize("size", [1, 2, 5, BLOCK + 3])
checked = settings(deadline=None, derandomize=True, max_examples=20)


def tiny(size: int, dropout: float = 0.0) -> FixedWindowDecoder:
    config = FixedWindowConfig(
        context_length=BLOCK, size=size, d_model=4, d_hidden=5, dropout=dropout
    )
    return sharp(FixedWindowDecoder(config, VOCABULARY))


def by_definition(model: FixedWindowDecoder, text: list[int]) -> Tensor:
    """tanh(d + Hx) of the last embeddings, position by position, and the map to the output."""
    weights, rows = model.state_dict(), []
    for t in range(len(text)):
        seen = ([PAD] * model.size + text[: t + 1])[-model.size :]
        x = torch.cat([weights["embedding.weight"][token] for token in seen])
        hidden = torch.tanh(weights["hidden.bias"] + weights["hidden.weight"] @ x)
        rows.append(weights["o_proj.bias"] + weights["o_proj.weight"] @ hidden)
    return torch.stack(rows)


@SIZES
@checked
@given(text=texts)
@torch.no_grad()
def test_it_is_the_formula(text: list[int], size: int) -> None:
    model = tiny(size)
    assert close(model(torch.tensor([text]))[0], by_definition(model, text))


@SIZES
@checked
@given(conversation=conversations())
@torch.no_grad()
def test_states_batches_and_padding_change_no_hidden_state(
    conversation: Conversation, size: int
) -> None:
    model = tiny(size)
    found = last_hidden(model, model.init_state(len(conversation), BLOCK), conversation)
    for turn, hidden in enumerate(found):
        for row, turns in enumerate(conversation):
            assert close(hidden[row], by_definition(model, joined(turns[: turn + 1]))[-1])


@SIZES
@torch.no_grad()
def test_it_sees_its_window_and_nothing_before(size: int) -> None:
    model, text = tiny(size), [3, 1, 4, 1, 5, 9, 2, 6]
    last = model(torch.tensor([text]))[0, -1]
    for place in range(len(text)):
        other = torch.tensor([[*text[:place], 7, *text[place + 1 :]]])
        assert close(model(other)[0, -1], last) == (place < len(text) - size)


@SIZES
@torch.no_grad()
def test_states_can_be_reordered_and_repeated(size: int) -> None:
    model, rows = tiny(size), torch.tensor([2, 0, 0])
    ids, lengths = padded([[1, 2, 3], [4], [5, 6]])
    _, states = model.extend(ids, model.init_state(3, BLOCK), torch.arange(3) < lengths[:, None])
    more = torch.tensor([[7], [8], [9]])
    chosen, after = model.extend(more[rows], states.reorder(rows))
    assert close(chosen, model.extend(more, states)[0][rows])
    assert after.length.tolist() == [3, 4, 4]
    assert after.bytes == states.bytes == 8 * 3 * size


def test_more_than_the_block_is_refused() -> None:
    model, reason = tiny(3), f"{BLOCK + 1} tokens don't fit the model's context length of {BLOCK}"
    with pytest.raises(ValueError, match=reason):
        model.init_state(1, BLOCK + 1)
    with pytest.raises(ValueError, match=reason):
        model(torch.zeros(1, BLOCK + 1, dtype=torch.long))


def test_dropout_is_on_embeddings_and_hidden_layer_in_training_alone() -> None:
    wet, dry, ids = tiny(3, dropout=0.5), tiny(3), torch.tensor([[1, 2, 3, 4]])
    widths: list[int] = []
    for dropout in (wet.dropout_embedding, wet.dropout_hidden):
        dropout.register_forward_hook(lambda _, __, out: widths.append(out.shape[-1]))
    # Exact: the same operations on the same shapes.
    assert torch.equal(wet(ids), dry(ids))
    assert widths == [4, 5]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.allclose(wet.train()(ids), wet(ids))
