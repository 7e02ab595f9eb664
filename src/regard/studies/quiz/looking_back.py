"""A small training task: predict tokens at given distances back."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from regard.models.config import DecoderConfig
from regard.positions.config import PositionsConfig

TOKENS, LENGTH, ROWS = 4, 12, 32
"""Vocabulary size, length of a row, and rows per step."""


def config(d: int, positions: PositionsConfig) -> DecoderConfig:
    """Return a decoder of one layer with two heads."""
    return DecoderConfig(
        context_length=LENGTH, d_model=d, dropout=0.0, n_layers=1, n_heads=2, positions=positions
    )


def train(
    model: Any, *, distances: Sequence[int], steps: int, lr: float, seed: int
) -> Iterator[float]:
    """Iterate over the losses of a training, one per step, each before its update.

    The label of a position is a number whose digits are the tokens at all distances back.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    first = max(distances)
    for _ in range(steps):
        ids = rows(generator)
        scores = model.head(model.body(ids))[:, first:]
        digits = [ids[:, first - distance : LENGTH - distance] for distance in distances]
        labels = sum(digit * TOKENS**power for power, digit in enumerate(digits))
        loss = F.cross_entropy(scores.flatten(0, 1), torch.as_tensor(labels).flatten())
        yield loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def rows(generator: torch.Generator) -> Int[Tensor, "rows length"]:
    """Return random tokens."""
    return torch.randint(TOKENS, (ROWS, LENGTH), generator=generator)
