"""The study `gaussian-identity`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.studies.finding import Verdict
from regard.studies.kernels.gaussian_kernel import gaussian_identity, parts, rounding


@settings(max_examples=30)
@given(st.integers(1, 64), st.floats(0.1, 4), st.integers(0, 2**32 - 1))
def test_the_exponents_add_up_to_the_score(d: int, spread: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key = spread * torch.randn(2, 5, d, generator=generator, dtype=torch.float64)
    gauss, of_query, of_key = parts(query, key, d**0.5)
    for i in range(5):
        for j in range(5):
            score = float(query[i] @ key[j]) / d**0.5
            together = float(of_query[i, 0] + gauss[i, j] + of_key[j])
            assert together == pytest.approx(score, abs=rounding(query, key, d**0.5))


def test_the_verdict() -> None:
    assert gaussian_identity().verdict is Verdict.HOLDS
    assert gaussian_identity(d=1, n=2, spread=4).verdict is Verdict.HOLDS
    assert gaussian_identity(width=1.01).verdict is Verdict.FAILS, "another σ"


def test_another_width_breaks_each_identity_and_nothing_else() -> None:
    *identities, alone = gaussian_identity(width=0.9).numbers
    assert not any(number.holds for number in identities)
    assert alone.holds
