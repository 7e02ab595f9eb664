"""The study `projection`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.studies.finding import Verdict
from regard.studies.low_rank.factors import draw_heads, projected, projection
from regard.studies.tensors import relative_error


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


def test_the_numbers() -> None:
    found = {number.name: number for number in projection(steps=1).numbers}
    exact = ("rank of P", "error of Q(CK)ᵀDV", "error of Q(KᵀV)/√h")
    assert all(found[name].holds for name in exact)
    assert found["rank of P"].measured == 6
    assert found["multiplications of Q(CK)ᵀDV"].measured == 4 * 64 * 6 * 16
    assert found["multiplications of Q(KᵀV)"].measured == 2 * 64 * 16 * 16
    assert found["multiplications of (QKᵀ)V"].measured == 2 * 64 * 64 * 16


def test_the_verdict() -> None:
    assert projection().verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("wrong", "broken"),
    [
        (["rows=5", "steps=1"], "error of Q(CK)ᵀDV"),
        (["reach=0", "steps=100"], "error of trained Linformer / mean of all values"),
        (["steps=5"], "error of trained / random Linformer"),
    ],
)
def test_the_verdict_where_a_premise_is_broken(wrong: list[str], broken: str) -> None:
    found = projection.with_texts(["n=32", *wrong])
    assert found.verdict is Verdict.FAILS
    assert broken in {number.name for number in found.numbers if not number.holds}


@pytest.mark.parametrize(
    ("wrong", "message"), [("rank=17", "has at most rank 16"), ("rows=20", "rows = 20 of n = 16")]
)
def test_sizes_that_do_not_fit_are_refused(wrong: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        projection.with_texts([wrong, "n=16"])
