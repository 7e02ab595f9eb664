"""Ridge regression."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.studies.ridge import PENALTY, fit_probe
from tiny_recurrent import normal

SEEDS = st.integers(0, 10_000)


@given(SEEDS)
def test_a_weight_counts_rows(seed: int) -> None:
    x, y = normal(20, 3, seed=seed), normal(20, 2, seed=seed + 1)
    counts = torch.arange(20) % 3 + 1
    often = fit_probe(x.repeat_interleave(counts, 0), y.repeat_interleave(counts, 0))
    # Both solve a well-conditioned system of 3 by sums over at most 40 rows.
    assert torch.allclose(often(x), fit_probe(x, y, counts.double())(x), rtol=1e-9, atol=1e-9)


@given(SEEDS)
def test_the_solution_is_that_of_least_squares_with_the_penalty(seed: int) -> None:
    """The gradient of the penalized squares is 0."""
    x, y = normal(30, 4, seed=seed), normal(30, 2, seed=seed + 1)
    probe = fit_probe(x, y)
    zero = torch.zeros(1, 4, dtype=torch.float64)
    a, b = torch.eye(4, dtype=torch.float64), probe(zero)
    a = probe(a) - b
    off = probe(x) - y
    penalty = PENALTY * x.var(0, correction=0).mean()
    assert torch.allclose(x.mT @ off / 30 + penalty * a, torch.zeros(()).double(), atol=1e-10)
    assert torch.allclose(off.mean(0), torch.zeros(()).double(), atol=1e-12)
