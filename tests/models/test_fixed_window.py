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
    sharp,
    texts,
)

SIZES = pytest.mark.parametrize("size", [1, 3, BLOCK + 3])
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
