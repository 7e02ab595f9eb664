"""Typical mistakes in a line are caught."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from regard.derivations import DERIVATIONS, TOLERANCE, Derivation, Inputs
from regard.derivations.expectation import expect, normal_cdf

Mistake = Callable[[Inputs], Tensor]


def with_mistake(name: str, tex: str, value: Mistake) -> Derivation:
    """The derivation with another value in the line that begins with some TeX."""
    derivation = DERIVATIONS[name]
    (found,) = (i for i, step in enumerate(derivation.steps) if step.tex.startswith(tex))
    steps = list(derivation.steps)
    assert steps[found].relation, "a line that is checked"
    steps[found] = replace(steps[found], value=value)
    return replace(derivation, steps=tuple(steps))


def softmax(x: Inputs) -> Tensor:
    return x.o.softmax(0)


def without_transposes(x: Inputs) -> Tensor:
    """W_hh^(t−i) in place of its transpose."""
    states, gradients = hidden(x), []
    for t in range(1, len(x.x) + 1):
        at_t = x.W_yh.T @ ((x.W_yh @ states[t]).softmax(0) - x.y[t - 1])
        gradients += [torch.linalg.matrix_power(x.W_hh, t - i) @ at_t for i in range(1, t)]
    return torch.stack(gradients)


def hidden(x: Inputs) -> list[Tensor]:
    states = [x.W_hh.new_zeros(len(x.W_hh))]
    for row in x.x:
        states.append(x.W_hh @ states[-1] + x.W_hx @ row)
    return states


def same_state(x: Inputs) -> Tensor:
    """h_i in place of h_(i−1)."""
    states, gradient, delta = hidden(x), torch.zeros_like(x.W_hh), 0 * x.W_hh[0]
    for i in reversed(range(1, len(x.x) + 1)):
        error = (x.W_yh @ states[i]).softmax(0) - x.y[i - 1]
        delta = x.W_yh.T @ error + x.W_hh.T @ delta
        gradient += torch.outer(delta, states[i])
    return gradient


def bias_after_the_softmax(x: Inputs) -> Tensor:
    return (x.q @ x.k.T).softmax(1) + x.q_pos @ x.k_pos.T


def transposed_rotation(x: Inputs) -> Tensor:
    angle = x.s * x.omega
    rows = [torch.stack([angle.cos(), -angle.sin()], 1), torch.stack([angle.sin(), angle.cos()], 1)]
    return torch.stack(rows, 1)


def frequencies_from_one(x: Inputs) -> Tensor:
    omega = 10_000 ** (-torch.arange(1, len(x.omega) + 1).double() / len(x.omega))
    return (x.s * omega).cos().sum()


def elu(x: Tensor) -> Tensor:
    return torch.nn.functional.elu(x) + 1


def last_normalizer(x: Inputs) -> Tensor:
    """Z_N for all tokens."""
    top = (elu(x.Q) @ elu(x.K).T).tril() @ x.V
    return top / (elu(x.Q) @ elu(x.K).sum(0))[:, None]


def read_before_update(x: Inputs) -> Tensor:
    """S_(i−1) for S_i."""
    states = (elu(x.K)[:, :, None] * x.V[:, None]).cumsum(0)
    return torch.cat([0 * states[:1], states[:-1]])


def mean_with_the_variance_of_the_course(x: Inputs) -> Tensor:
    return expect(lambda w: (w @ (x.q - x.k)).cos(), torch.zeros_like(x.q), x.s2.sqrt(), nodes=48)


def a(x: Inputs) -> Tensor:
    return (x.x + x.y) @ (x.x + x.y)


def b(x: Inputs) -> Tensor:
    return (x.x - x.y) @ (x.x - x.y)


def kernel(x: Inputs) -> Tensor:
    return (x.x @ x.y).exp()


MISTAKES: dict[str, tuple[str, str, Mistake]] = {
    "gradient with the other sign": (
        "softmax-cross-entropy",
        r"= \hat y_j - y_j",
        lambda x: x.y - softmax(x),
    ),
    "diagonal Jacobian of the softmax": (
        "softmax-cross-entropy",
        r"= \hat y_i (\delta_{ij}",
        lambda x: torch.diag(softmax(x) * (1 - softmax(x))),
    ),
    "no transpose in time": (
        "backpropagation-through-time",
        r"= (W_{hh}^\top)^{t-i} \, W_{yh}",
        without_transposes,
    ),
    "the state of the same step": (
        "backpropagation-through-time",
        r"= \sum_{i=1}^{T} \delta_i",
        same_state,
    ),
    "one projection instead of three": (
        "attention-complexity",
        r"= 3 n h^2",
        lambda x: x.n * x.h**2 + 2 * x.n**2 * (x.h + 1),
    ),
    "cost of cross-attention from one length": (
        "three-attentions",
        r"= 2 M N k",
        lambda x: 2 * x.N**2 * x.k,
    ),
    "singular values lost": (
        "attention-from-svd",
        r"= U \left(",
        lambda x: x.U @ (x.W.T @ x.V),
    ),
    "U for W": (
        "attention-by-two-projections",
        r"= U \Sigma W^\top V",
        lambda x: x.U @ torch.diag(x.S) @ x.U.T @ x.V,
    ),
    "√h lost": (
        "attention-by-two-projections",
        r"= \frac{1}{\sqrt h}",
        lambda x: x.Q @ x.K.T @ x.W @ x.W.T @ x.V,
    ),
    "a mean that grows without its square": (
        "product-mean",
        r"= h m^2",
        lambda x: x.h * x.m,
    ),
    "σ² for σ⁴": (
        "product-variance",
        r"= h \sigma^4",
        lambda x: x.h * x.sigma**2 + 2 * x.sigma**2 * (x.mu**2).sum(),
    ),
    "variance without the mean": (
        "product-variance",
        r"= h \sigma^4",
        lambda x: x.h * x.sigma**4,
    ),
    "W_q transposed": (
        "products-by-hand",
        r"= \begin{pmatrix} 4 \\ 35",
        lambda x: x.W_q.T @ x.h2,
    ),
    "n − 1 others": (
        "averaging-query",
        r"= \frac{e^t}{2 e^t",
        lambda x: x.t.exp() / (2 * x.t.exp() + x.n - 1),
    ),
    "noise along one mean only": (
        "noisy-keys",
        r"= 2 \alpha t^2",
        lambda x: (x.alpha * x.t**2).expand(len(x.mu)),
    ),
    "the length without t": (
        "noisy-keys",
        r"= \frac{1}{1 + e^{-t",
        lambda x: torch.sigmoid(x.gamma - 1),
    ),
    "variance as deviation": (
        "two-head-output",
        r"= \Phi\left( \sqrt 2",
        lambda x: normal_cdf(2 * (1 - torch.log(x.n - 1) / x.t)),
    ),
    "no ln(n − 1)": (
        "two-head-output",
        r"= \Phi\left( \sqrt 2",
        lambda x: normal_cdf((2 * torch.ones_like(x.t)).sqrt()),
    ),
    "no β²": (
        "head-design",
        r"= (\beta^2, \; 0, \; 0)",
        lambda x: torch.stack([x.beta, 0 * x.beta, 0 * x.beta]),
    ),
    "one cross term": (
        "concatenation",
        r"= x_1 \cdot x_2 + x_1 \cdot p_2",
        lambda x: x.x1 @ x.x2 + x.x1 @ x.p2 + x.p1 @ x.p2,
    ),
    "a bias on weights": (
        "relative-bias",
        r"= \frac{e^{\pi_{ij}} \, e^{q_i \cdot k_j}}",
        bias_after_the_softmax,
    ),
    "2T distances": ("relative-bias", r"= (2 (T - 1)", lambda x: 2 * x.T * x.m),
    "rotation the other way": (
        "shift-matrix",
        r"= \begin{pmatrix} \cos s \omega_k",
        transposed_rotation,
    ),
    "frequencies from k = 1": (
        "shift-matrix",
        r"= \sum_{k=0}^{d/2-1} \cos s",
        frequencies_from_one,
    ),
    "no residual": (
        "receptive-field",
        r"= \prod_{l=1}^{n} (k + 1)",
        lambda x: (x.k**x.n).expand(int(x.N)),
    ),
    "σ² = D": (
        "gaussian-kernel",
        r"= e^{q \cdot k / \sigma^2}",
        lambda x: (x.q @ x.k / x.D).exp(),
    ),
    "covariance of the course": (
        "random-features-cost",
        r"= \mathbb{E}\left[ \cos\left( w_1^\top (q - k)",
        mean_with_the_variance_of_the_course,
    ),
    "the last Z for all": (
        "causal-sums",
        r"= \frac{\phi(Q_i)^\top S_i}",
        last_normalizer,
    ),
    "read before update": ("causal-sums", r"= S_{i-1}", read_before_update),
    "√d for d^¼": (
        "positive-features",
        r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \; e^{\lVert x + y",
        lambda x: (x.q @ x.k / x.d).exp(),
    ),
    "no norms": (
        "positive-features",
        r"= e^{-\left( \lVert x \rVert^2 + \lVert y \rVert^2 \right) / 2} \; e^{\lVert x + y",
        lambda x: (a(x) / 2).exp(),
    ),
    "half of the trigonometric error lost": (
        "favor-errors",
        r"= \frac{1}{2m} \, e^{a}",
        lambda x: a(x).exp() * kernel(x) ** -2 * (1 - (-b(x)).exp()) ** 2 / x.m,
    ),
    "the kernel's power with the other sign": (
        "favor-errors",
        r"= \frac{1}{2m} \, e^{a}",
        lambda x: a(x).exp() * kernel(x) ** 2 * (1 - (-b(x)).exp()) ** 2 / (2 * x.m),
    ),
    "a bound with d for d + 2": (
        "orthogonal-features",
        r"\geq \sum_{k \geq 1}",
        lambda x: 2 / x.d * ((a(x) / 2).exp() - 1) ** 2,
    ),
    "features for free": (
        "feature-products",
        r"= L \left( 4 m d",
        lambda x: 2 * x.L * x.m * x.d,
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_caught(mistake: str) -> None:
    """With some of a few seeds: where a size is 1, some mistakes make no difference."""
    derivation = with_mistake(*MISTAKES[mistake])
    assert max(max(derivation.check(seed)) for seed in range(4)) > 1000 * TOLERANCE


def test_every_derivation_has_a_mistake() -> None:
    assert {name for name, _, _ in MISTAKES.values()} == set(DERIVATIONS)
