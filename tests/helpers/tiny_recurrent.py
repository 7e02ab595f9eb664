"""What tests of models with states share: sharp weights, rows of unequal length, conversations."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeVar

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.models.config import RecurrentConfig

BLOCK = 16
VOCABULARY = 11
CELLS: dict[str, dict[str, Any]] = {
    "vanilla": {"cell": "vanilla"},
    "identity": {"cell": "vanilla", "activation": "identity"},
    "gru": {"cell": "gru"},
    "lstm": {"cell": "lstm"},
}
TINY: dict[str, Any] = {"context_length": BLOCK, "n_layers": 2, "d_model": 6, "dropout": 0.0}

tokens = st.integers(0, VOCABULARY - 1)
texts = st.lists(tokens, min_size=1, max_size=BLOCK)
batches = st.lists(texts, min_size=1, max_size=4)

M = TypeVar("M", bound=nn.Module)


def tiny_config(**settings: Any) -> RecurrentConfig:
    """Two layers of width 6, without dropout unless it is asked for."""
    return RecurrentConfig(**{**TINY, **settings})


def sharp(module: M, *, seed: int = 0) -> M:
    """The module in float64 and evaluation mode, with weights so large that every part matters."""
    generator = torch.Generator().manual_seed(seed)
    module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return module


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def padded(rows: Sequence[Sequence[int]], *, padding: int = 0) -> tuple[Tensor, Tensor]:
    """Rows as one tensor, and their lengths."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([len(row) for row in rows])


def close(one: Tensor, other: Tensor) -> bool:
    """Whether both are the same up to what float64 rounds off in a few dozen steps."""
    assert one.shape == other.shape
    largest = max(1.0, float(other.abs().max()))
    return float((one - other).abs().max()) <= 1e-10 * largest


Conversation = list[list[list[int]]]
"""For each row, its texts in turn."""


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    """One to three rows that take equally many turns, and fit the block."""
    rows, turns = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    text = st.lists(tokens, min_size=1, max_size=BLOCK // turns)
    return [[draw(text) for _ in range(turns)] for _ in range(rows)]


def last_hidden(model: Any, states: Any, conversation: Conversation) -> list[Tensor]:
    """After each turn, the hidden state of each row's last token: batched, padded, from states."""
    found = []
    for turn in zip(*conversation, strict=True):
        ids, lengths = padded(turn, padding=VOCABULARY - 1)
        attention_mask = torch.arange(ids.shape[1]) < lengths[:, None]
        hidden, states = model.extend(
            ids, states, None if bool(attention_mask.all()) else attention_mask
        )
        found.append(hidden[torch.arange(len(ids)), lengths - 1])
    return found


def joined(turns: Sequence[Sequence[int]]) -> list[int]:
    """The texts of a row as one."""
    return [*chain(*turns)]
