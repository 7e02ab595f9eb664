"""Models with random weights."""

import pytest
import torch
from torch import nn

from regard.studies.random_models import untrained


def test_it_is_drawn_by_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (untrained(lambda: nn.Linear(50, 40), seed).weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_layer_keeps_the_size_of_what_it_reads() -> None:
    layer = untrained(lambda: nn.Linear(200, 200), 0)
    x = torch.randn(200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    # Squares of N(0, 1) have variance 2; over 200 of them, twice.
    assert layer(x).square().mean() == pytest.approx(1, abs=4 * 0.2)
    assert not layer.weight.requires_grad
