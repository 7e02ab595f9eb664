"""The study `truncation`."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.low_rank.factors import (
    exactness,
    map_of_rank,
    ranks,
    trained_ranks,
    truncation,
    truncation_errors,
)


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


@pytest.mark.parametrize(
    ("maps", "failing"),
    [
        (torch.eye(8), "rank / n for a relative error of a tenth, mean"),
        (torch.full((8, 8), 1 / 8), "rank / n of trained maps"),
    ],
    ids=["a permutation", "uniform"],
)
def test_real_maps_are_judged(maps: torch.Tensor, failing: str) -> None:
    wrong = [number.name for number in trained_ranks(maps[None].double()) if not number.holds]
    assert wrong == [failing]


def test_a_mixture_of_the_two_passes() -> None:
    uniform, permutation = torch.full((16, 16), 1 / 16), torch.eye(16)
    maps = (0.98 * uniform + 0.02 * permutation)[None].double()
    assert all(number.holds for number in trained_ranks(maps))
    assert int(ranks(torch.linalg.svdvals(maps), 0.1)) == 1


@pytest.mark.slow
def test_too_few_singular_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    found = truncation(steps=2, kept=5)
    assert found.verdict is Verdict.FAILS
    assert "error of PV with k = 5" in {x.name for x in found.numbers if not x.holds}
    assert {x.name: x.measured for x in found.numbers}["rank / n of trained maps"] == 1


@pytest.mark.slow
def test_the_verdict() -> None:
    assert truncation().verdict is Verdict.HOLDS
