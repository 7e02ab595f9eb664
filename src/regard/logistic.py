"""Logistic regression with a quadratic penalty, which keeps separable data finite."""

from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float
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


def fit_labels(
    design: Design, labels: Float[np.ndarray, " n"] | Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " p"]:
    """Return the weights of a design that predict labels, with the penalty ‖w‖² / 2.

    The last column is constant: its weight, the bias, has no penalty. Labels are smoothed as if by
    an additional row of each kind, so that the bias is finite even if all are equal.
    """
    target = (labels * len(labels) + 1) / (len(labels) + 2)
    return fit_logistic(design, target, np.append(np.ones(design.shape[1] - 1), 0.0))
