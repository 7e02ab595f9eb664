"""The study complexity."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.attention import KernelAttention, Shape, Softmax
from regard.attention.feature_maps import Fourier
from regard.studies.costs import multiplications
from regard.studies.scaling.complexity import (
    DOUBLED,
    Part,
    complexity,
    counted,
    families,
    kernels,
    layer,
)
from tiny_studies import broken


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 20))
def test_what_runs_is_what_the_formula_says(m: int, n: int, h: int) -> None:
    for part in (*layer(n, h), *families(m, n, h)):
        assert multiplications(part.call) == part.predicted, part.name


def test_the_formulas_are_those_of_the_library() -> None:
    n, d, e, r = 200, 6, 10, 14
    shape = Shape(batch=1, heads=1, kv_heads=1, queries=n, keys=n, d=d, e=e)
    attentions = (
        Softmax(),
        KernelAttention(Fourier(d=d, features=r), chunk=1),
    )
    for part, attention in zip(kernels(n, d, e, r), attentions, strict=True):
        assert 2 * part.predicted == attention.cost(shape).operations, part.name
        assert counted(part).holds, part.name


def test_a_wrong_formula_is_found_out() -> None:
    x = torch.ones(3, 4)
    assert counted(Part("right", 48, lambda: x @ x.mT @ x)).measured == 72
    assert not counted(Part("wrong", 48, lambda: x @ x.mT @ x)).holds
    assert counted(Part("right", 72, lambda: x @ x.mT @ x)).holds


def test_a_doubled_length_doubles_or_quadruples_the_count() -> None:
    def counts(m: int, n: int) -> list[float]:
        return [part.predicted for part in families(m, n, 8)]

    (encoder, cross, decoder), twice_m, twice_n = counts(4, 6), counts(8, 6), counts(4, 12)
    ratios = (twice_m[0] / encoder, twice_m[1] / cross, twice_n[1] / cross, twice_n[2] / decoder)
    assert ratios == tuple(queries * keys for queries, keys in DOUBLED.values())


def test_all_counts_are_those_of_the_formulas() -> None:
    """Times depend on what else runs."""
    wrong = broken(complexity(h=16, start=2).numbers)
    assert all("time" in name for name in wrong), wrong
