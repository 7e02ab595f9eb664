"""Factors of low rank: projection and truncation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.low_rank.factors import (
    TOKENS,
    draw_heads,
    exactness,
    map_of_rank,
    model_maps,
    projected,
    ranks,
    trained_ranks,
    truncation_errors,
)
from regard.studies.tensors import relative_error
from regard.text.corpus import Document
from regard.training.plan import plan_training
from regard.training.sources.documents import DocumentSource
from tiny_studies import broken


@settings(max_examples=30)
@given(st.integers(4, 30), st.integers(1, 8), st.integers(0, 1000), st.data())
def test_projection_loses_the_smallest_singular_values_and_nothing_else(
    n: int, h: int, seed: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(1, min(n, h)))
    rows = data.draw(st.integers(1, n))
    query, key, _ = draw_heads(n, h, rank, seed)
    scores = query @ key.mT / math.sqrt(h)
    values, right = torch.linalg.svd(scores)[1:]
    identity = torch.eye(n, dtype=torch.float64)
    found = projected(query, key, identity, right[:rows] / math.sqrt(h), right[:rows])
    expected = float(values[rows:].norm() / values.norm())
    assert relative_error(found, scores) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=20)
@given(st.integers(8, 60), st.integers(4, 16), st.integers(1, 8), st.integers(1, 8))
def test_a_map_is_exact_from_its_rank_on(n: int, h: int, rank: int, kept: int) -> None:
    numbers = {number.name: number for number in exactness(n, h, rank, kept, 0)}
    assert numbers["rank of the map"].holds
    assert numbers[f"‖P − P_k‖ with k = {max(rank // 2, 1)}"].holds
    assert numbers["multiplications with factors"].measured == 2 * n * kept * h
    assert numbers[f"error of PV with k = {kept}"].holds == (kept >= rank)


def test_maps_of_known_rank_are_maps() -> None:
    matrix, _ = map_of_rank(12, 4, 3, 0)
    torch.testing.assert_close(matrix.sum(-1), torch.ones(12, dtype=torch.float64))


def test_ranks_by_hand() -> None:
    values = torch.tensor([[4.0, 3.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(truncation_errors(values)[0], torch.tensor([1.0, 0.6, 0.0]).double())
    assert ranks(values, 0.0).tolist() == [2, 3]
    assert ranks(values, 0.6).tolist() == [1, 2]
    assert ranks(values, 1.0).tolist() == [0, 0]


def test_trained_maps_are_judged() -> None:
    """Neither a permutation nor uniform weights will do; a mixture of the two has a low rank."""
    permutation, uniform = torch.eye(16).double(), torch.full((16, 16), 1 / 16).double()
    assert broken(trained_ranks(permutation[None])) == [
        "rank / n for a relative error of a tenth, mean"
    ]
    assert broken(trained_ranks(uniform[None])) == ["rank / n of trained maps"]
    mixture = (0.98 * uniform + 0.02 * permutation)[None]
    assert broken(trained_ranks(mixture)) == []
    assert int(ranks(torch.linalg.svdvals(mixture), 0.1)) == 1


def test_ranks_are_not_those_of_rounding() -> None:
    texts = ["".join(chr(97 + (i * j * j + 3 * j) % 26) for j in range(TOKENS)) for i in (1, 2)]
    settings = [
        *("tokenizer.kind=characters", f"model.context_length={TOKENS}"),
        *("model.n_layers=1", "model.n_heads=2", "model.d_model=4"),  # heads of width 2
    ]
    source = DocumentSource([Document(text, f"text {i}") for i, text in enumerate(texts)])
    run = plan_training(source, "masked", "unused", settings=settings).run
    maps = model_maps(run, texts)
    assert ranks(torch.linalg.svdvals(maps), 0.0).max() < TOKENS
    assert next(run.model.parameters()).dtype == torch.float32
