"""Learned positions: one vector a position, zero at first."""

import pytest
import torch

from regard.positions import Learned


def test_positions_add_nothing_at_first() -> None:
    learned = Learned(length=5, d=3)
    assert learned.vectors.shape == (5, 3)
    assert not learned.vectors.any()


def test_each_row_gets_the_vectors_of_its_own_positions() -> None:
    learned = Learned(length=4, d=2)
    with torch.no_grad():
        learned.vectors.copy_(torch.arange(8.0).view(4, 2))
    out = learned(torch.tensor([[0, 3], [1, 1]]))
    assert out.tolist() == [[[0.0, 1.0], [6.0, 7.0]], [[2.0, 3.0], [2.0, 3.0]]]


def test_only_positions_that_occur_learn() -> None:
    learned = Learned(length=4, d=2)
    learned(torch.tensor([[0, 2, 2]])).sum().backward()
    assert learned.vectors.grad is not None
    assert learned.vectors.grad[:, 0].tolist() == [1.0, 0.0, 2.0, 0.0]


def test_a_position_past_the_end_is_refused() -> None:
    with pytest.raises(IndexError):
        Learned(length=4, d=2)(torch.tensor([[4]]))
