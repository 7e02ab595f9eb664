"""Logistic regression with a quadratic penalty, which keeps separable data finite."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

Design: TypeAlias = Float[np.ndarray, "n p"] | csr_matrix


def fit_logistic(
    design: Design, target: Float[np.ndarray, " n"], penalty: Float[np.ndarray, " p"]
) -> Float[np.ndarray, " p"]:
    """Return the weights w that minimize −log P(target) + Σ penalty · w² / 2, summed over rows.

    A target is a probability.
    """

    def loss(weights: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        logits = design @ weights
        value = (np.logaddexp(0, logits) - target * logits).sum() + penalty @ weights**2 / 2
        return value, design.T @ (expit(logits) - target) + penalty * weights

    found: Float[np.ndarray, " p"] = minimize(
        loss, np.zeros(len(penalty)), jac=True, method="L-BFGS-B"
    ).x
    return found
