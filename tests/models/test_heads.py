"""Heads by their formulas, row by row."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.errors import UserError
from regard.models.builders import make_model
from regard.models.config import RecurrentConfig
from regard.models.head_config import Pool, ReconstructionHeadConfig
from regard.models.heads import ClassificationHead, EmbeddingHead, ReconstructionHead, pooled_states
from tiny_recurrent import close, normal, sharp

POOLS = pytest.mark.parametrize("pool", get_args(Pool))
checked = settings(deadline=None, derandomize=True, max_examples=20)
lengths_of_rows = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def pooled(row: Tensor, pool: Pool) -> Tensor:
    """Of one row without padding."""
    if pool == "mean":
        return torch.stack([row[:, i].sum() / len(row) for i in range(row.shape[1])])
    return row[0] if pool == "first" else row[-1]


@POOLS
@checked
@given(lengths=lengths_of_rows, padding=st.sampled_from([0.0, 1e9, math.inf, math.nan]))
def test_a_row_is_pooled_without_its_padding(
    lengths: list[int], padding: float, pool: Pool
) -> None:
    hidden = normal(len(lengths), 7, 3)
    for row, n in zip(hidden, lengths, strict=True):
        row[n:] = padding
    found = pooled_states(hidden, torch.tensor(lengths), pool)
    for row, n, one in zip(hidden, lengths, found, strict=True):
        assert close(one, pooled(row[:n], pool))


@POOLS
@torch.no_grad()
def test_labels_are_scored_by_the_formula(pool: Pool) -> None:
    head, hidden = sharp(ClassificationHead(4, 3, pool=pool, dropout=0.5)), normal(2, 5, 4)
    found = head(hidden, torch.tensor([5, 2]))
    for row, n, scores in zip(hidden, (5, 2), found, strict=True):
        layer = (head.layer.weight @ pooled(row[:n], pool) + head.layer.bias).tanh()
        assert close(scores, head.scores.weight @ layer + head.scores.bias)


@POOLS
@torch.no_grad()
def test_vectors_have_length_1_along_the_formula(pool: Pool) -> None:
    head, hidden = sharp(EmbeddingHead(4, 6, pool=pool, temperature=0.1)), normal(2, 5, 4)
    assert isinstance(head.layer, nn.Linear)
    found = head(hidden, torch.tensor([5, 2]))
    assert close(found.square().sum(1), torch.ones(2, dtype=torch.float64))
    for row, n, vector in zip(hidden, (5, 2), found, strict=True):
        along = head.layer.weight @ pooled(row[:n], pool)
        assert close(vector * along.norm(), along)


@POOLS
def test_vectors_without_a_projection_are_pooled_states(pool: Pool) -> None:
    hidden = normal(2, 5, 4)
    found = EmbeddingHead(4, 0, pool=pool, temperature=0.1)(hidden, torch.tensor([5, 2]))
    for row, n, vector in zip(hidden, (5, 2), found, strict=True):
        assert close(vector * pooled(row[:n], pool).norm(), pooled(row[:n], pool))


def test_similarities_are_at_least_of_single_precision() -> None:
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        head = EmbeddingHead(4, 6, pool="mean", temperature=0.1).to(dtype)
        found = head(normal(2, 5, 4).to(dtype), torch.tensor([5, 2]))
        assert found.dtype == torch.promote_types(dtype, torch.float32), dtype


@torch.no_grad()
def test_a_reconstruction_is_a_function_of_the_last_hidden_state() -> None:
    head, lengths = sharp(ReconstructionHead(8, 5, length=6)), torch.tensor([6, 3])
    hidden, other = normal(2, 6, 8), normal(2, 6, 8, seed=1)
    rows = torch.arange(2)
    other[rows, lengths - 1] = hidden[rows, lengths - 1]
    logits = head(hidden, lengths)
    assert torch.equal(logits, head(other, lengths))  # exact: the same operations on the same input
    assert len(logits[0].unique(dim=0)) == 6, "positions differ"
    other[rows, lengths - 1, 0] += 1
    assert (logits != head(other, lengths)).any(-1).all()


@torch.no_grad()
def test_a_reconstruction_has_the_type_of_the_weights() -> None:
    head = ReconstructionHead(8, 5, length=6).to(torch.bfloat16)
    logits = head(normal(2, 6, 8).to(torch.bfloat16), torch.tensor([6, 3]))
    assert logits.dtype == torch.bfloat16


def test_a_reconstruction_needs_an_even_width() -> None:
    config = RecurrentConfig(d_model=5, n_layers=1)
    with pytest.raises(UserError, match=r"model\.d_model = 5 is odd; choose an even"):
        make_model(config, ReconstructionHeadConfig(), 4)
