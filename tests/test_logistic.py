"""Penalized logistic regression."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import expit

from regard.logistic import fit_logistic


@given(st.integers(0, 100))
def test_the_gradient_is_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    design, target = rng.normal(size=(30, 4)), rng.random(30)
    penalty = np.array([1.0, 1.0, 0.5, 0.0])
    weights = fit_logistic(design, target, penalty)
    gradient = design.T @ (expit(design @ weights) - target) + penalty * weights
    assert np.abs(gradient).max() < 1e-3  # L-BFGS-B stops where the loss changes by 2e-9 of itself


def test_sparse_rows_give_the_same() -> None:
    rng = np.random.default_rng(0)
    design, target = (rng.random((50, 5)) < 0.3).astype(float), rng.random(50)
    dense, sparse = (fit_logistic(one, target, np.ones(5)) for one in (design, csr_matrix(design)))
    assert sparse == pytest.approx(dense, abs=1e-4)


def test_without_signal_the_weights_are_zero() -> None:
    weights = fit_logistic(np.array([[1.0], [-1.0]]), np.array([0.5, 0.5]), np.ones(1))
    assert weights == pytest.approx([0.0], abs=1e-9)
