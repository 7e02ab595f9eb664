"""Typical mistakes in a line are caught."""

from dataclasses import replace
from math import inf

import pytest

from regard.derivations import DERIVATIONS, TOLERANCE

MISTAKES = {
    "gradient with the other sign": (
        "softmax-cross-entropy",
        r"= \hat y_j - y_j",
        r"= y_j - \hat y_j",
    ),
    "diagonal Jacobian of the softmax": (
        "softmax-cross-entropy",
        r"= \hat y_i (\delta_{ij}",
        r"= \delta_{ij} \, \hat y_i (1 - \hat y_i)",
    ),
    "no transpose in time": (
        "backpropagation-through-time",
        r"= (W_{hh}^\top)^{t-i} \, W_{yh}",
        r"= W_{hh}^{t-i} \, W_{yh}^\top \, g_{o_t}, \quad i < t",
    ),
    "the state of the same step": (
        "backpropagation-through-time",
        r"= \sum_{i=1}^{T} \delta_i",
        r"= \sum_{i=1}^{T} \delta_i \, h_i^\top",
    ),
    "one projection instead of three": (
        "attention-complexity",
        "= 3 n h^2",
        "= n h^2 + 2 n^2 (h + 1)",
    ),
    "cost of cross-attention from one length": (
        "three-attentions",
        "= 2 M N k",
        "= 2 N^2 k",
    ),
    "singular values lost": (
        "attention-from-svd",
        r"= U \left(",
        r"= U \left( W^\top V \right)",
    ),
    "U for W": (
        "attention-by-two-projections",
        r"= U \Sigma W^\top V",
        r"= U \Sigma U^\top V",
    ),
    "√h lost": (
        "attention-by-two-projections",
        r"= \frac{1}{\sqrt h}",
        r"= Q K^\top \, W W^\top V",
    ),
    "a mean that grows without its square": (
        "product-mean",
        "= h m^2",
        "= h m",
    ),
    "σ² for σ⁴": (
        "product-variance",
        r"= h \sigma^4",
        r"= h \sigma^2 + 2 \sigma^2 \lVert \mu \rVert^2",
    ),
    "variance without the mean": (
        "product-variance",
        r"= h \sigma^4",
        r"= h \sigma^4",
    ),
    "W_q transposed": (
        "products-by-hand",
        r"= \begin{pmatrix} 4 \\ 35",
        r"= W_q^\top h_2",
    ),
    "n − 1 others": (
        "averaging-query",
        r"= \frac{e^t}{2 e^t",
        r"= \frac{e^t}{2 e^t + n - 1}",
    ),
    "noise along one mean only": (
        "noisy-keys",
        r"= 2 \alpha t^2",
        r"= \alpha t^2",
    ),
    "the length without t": (
        "noisy-keys",
        r"= \frac{1}{1 + e^{-t",
        r"= \frac{1}{1 + e^{-(\gamma - 1)}}",
    ),
    "variance as deviation": (
        "two-head-output",
        r"= \Phi\left( \sqrt 2",
        r"= \Phi\left( 2 \left( 1 - \frac{\ln(n - 1)}{t} \right) \right)",
    ),
    "no ln(n − 1)": (
        "two-head-output",
        r"= \Phi\left( \sqrt 2",
        r"= \Phi(\sqrt 2)",
    ),
    "no β²": (
        "head-design",
        r"= (\beta^2, \; 0, \; 0)",
        r"= (\beta, \; 0, \; 0)",
    ),
    "one cross term": (
        "concatenation",
        r"= x_1 \cdot x_2 + x_1 \cdot p_2",
        r"= x_1 \cdot x_2 + x_1 \cdot p_2 + p_1 \cdot p_2",
    ),
    "a bias on weights": (
        "relative-bias",
        r"= \frac{e^{\pi_{ij}} \, e^{q_i \cdot k_j}}",
        r"= \mathrm{softmax}_j(q_i \cdot k_j) + \pi_{ij}",
    ),
    "2T distances": (
        "relative-bias",
        "= (2 (T - 1)",
        "= 2 T m",
    ),
    "rotation the other way": (
        "shift-matrix",
        r"= \begin{pmatrix} \cos s \omega_k",
        r"= \begin{pmatrix} \cos s \omega_k & -"
        r"\sin s \omega_k \\ \sin s \omega_k & \cos s \omega_k \end{pmatrix}",
    ),
    "frequencies from k = 1": (
        "shift-matrix",
        r"= \sum_{k=0}^{d/2-1} \cos s",
        r"= \sum_{k=1}^{d/2} \cos(s \, 10000^{-2k/d})",
    ),
    "no residual": (
        "receptive-field",
        r"= \left( \prod_{l=1}^{n} (k + 1)",
        r"= \left( \prod_{l=1}^{n} k \right) e",
    ),
    "σ² = D": (
        "gaussian-kernel",
        r"= e^{q \cdot k / \sigma^2}",
        r"= e^{q \cdot k / D}",
    ),
    "covariance of the course": (
        "random-features-cost",
        r"= \mathbb{E}\left[ \cos\left( w_1^\top (q - k)",
        r"= e^{-\sigma^2 \lVert q - k \rVert^2 / 2}",
    ),
    "the last Z for all": (
        "causal-sums",
        r"= \frac{\phi(Q_i)^\top S_i}",
        r"= \frac{\phi(Q_i)^\top S_i}{\phi(Q_i)^\top Z_N}",
    ),
    "read before update": (
        "causal-sums",
        "= S_{i-1}",
        "= S_{i-1}",
    ),
    "√d for d^¼": (
        "positive-features",
        r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \; e^{\lVert x + y",
        r"= e^{q \cdot k / d}",
    ),
    "no norms": (
        "positive-features",
        r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \; e^{\lVert x + y",
        r"= e^{\lVert x + y \rVert^2 / 2}",
    ),
    "half of the trigonometric error lost": (
        "favor-errors",
        r"= \frac{1}{2m} \, e^{a}",
        r"= \frac{1}{m} \, e^{a} \, \mathrm{SM}^{-2} \left( 1 - e^{-b} \right)^2",
    ),
    "the kernel's power with the other sign": (
        "favor-errors",
        r"= \frac{1}{2m} \, e^{a}",
        r"= \frac{1}{2m} \, e^{a} \, \mathrm{SM}^2 \left( 1 - e^{-b} \right)^2",
    ),
    "a bound with d for d + 2": (
        "orthogonal-features",
        r"\geq \sum_{k \geq 1}",
        r"\geq \frac{2}{d} \left( e^{a/2} - 1 \right)^2",
    ),
    "features for free": (
        "feature-products",
        r"= L \left( 4 m d",
        "= 2 L m d",
    ),
}
"""A derivation, how a line of it begins, and the line with a mistake."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str) -> None:
    """With some of a few seeds: where a size is 1, some mistakes make no difference."""
    name, beginning, tex = MISTAKES[mistake]
    steps = DERIVATIONS[name].steps
    (place,) = (i for i, step in enumerate(steps) if step.tex.startswith(beginning))
    assert steps[place].relation, "a line that is checked"
    wrong, draws = replace(steps[place], tex=tex), map(DERIVATIONS[name].drawn, range(4))
    assert 1000 * TOLERANCE < max(wrong.error(steps[place - 1], draw) for draw in draws) < inf


def test_every_derivation_has_a_mistake() -> None:
    assert {name for name, _, _ in MISTAKES.values()} == set(DERIVATIONS)
