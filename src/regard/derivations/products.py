"""The product of a query and a key: its mean, its variance, and an example by hand."""

from collections.abc import Callable

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step
from regard.derivations.draws import normal, number, size, sizes
from regard.derivations.expectation import expect

_NODES = 3
"""Of the quadrature: exact, for no entry occurs with a power above 4."""


def _draw_normal(generator: Generator) -> Inputs:
    h = size(generator, 1, 3)
    mu: Float64[Tensor, " h"] = normal(generator, h)
    return Inputs(mu=mu, sigma=number(generator, 0.3, 2), m=number(generator, 0.2, 2), **sizes(h=h))


def _over_both(x: Inputs, f: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """E[f(q, k)] over all 2h entries of queries and keys at once."""
    h = len(x.mu)
    return expect(lambda z: f(z[:, :h], z[:, h:]), torch.cat([x.mu, x.mu]), x.sigma, nodes=_NODES)


def _over_pair(x: Inputs, f: Callable[[Tensor, Tensor], Tensor]) -> Float64[Tensor, " h"]:
    """E[f(q_i, k_i)] for each i."""
    return torch.stack(
        [expect(lambda z: f(z[:, 0], z[:, 1]), m.repeat(2), x.sigma, nodes=_NODES) for m in x.mu]
    )


def _over_entry(x: Inputs, power: int) -> Float64[Tensor, " h"]:
    """E[q_i^power] for each i; k_i has the same distribution."""
    return torch.stack(
        [expect(lambda z: z[:, 0] ** power, m[None], x.sigma, nodes=_NODES) for m in x.mu]
    )


_GIVEN = (
    r"A query and a key $q, k \in \mathbb{R}^h$, both from $\mathcal{N}(\mu, \sigma^2 I)$ and "
    r"independent of each other, which the course does not state. Its $d$ is the same number as "
    r"$h$. Expectations are evaluated by Gauss–Hermite quadrature, exact for these polynomials."
)

PRODUCT_MEAN = Derivation(
    name="product-mean",
    title="Mean of the product of a query and a key",
    given=_GIVEN,
    draw=_draw_normal,
    steps=(
        Step(
            r"\mathbb{E}\left[q \cdot k\right]",
            lambda x: _over_both(x, lambda q, k: (q * k).sum(1)),
            r"Evaluated as one integral over all $2h$ entries.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \mathbb{E}\left[q_i k_i\right]",
            lambda x: _over_pair(x, lambda q, k: q * k).sum(),
            "The expectation of a sum is the sum of expectations.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \mathbb{E}\left[q_i\right] \mathbb{E}\left[k_i\right]",
            lambda x: (_over_entry(x, 1) * _over_entry(x, 1)).sum(),
            r"$q_i$ and $k_i$ are independent.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \mu_i^2",
            lambda x: (x.mu**2).sum(),
            r"Both have mean $\mu_i$.",
        ),
        Step(
            r"= \lVert \mu \rVert^2",
            lambda x: torch.linalg.vector_norm(x.mu) ** 2,
            r"The squared norm of the mean. $\sigma$ has no part in it.",
        ),
        Step(
            r"\lVert (m, \ldots, m) \rVert^2",
            lambda x: torch.linalg.vector_norm(x.m.expand(int(x.h))) ** 2,
            r"If every entry of $\mu$ is one number $m$:",
        ),
        Step(r"= h m^2", lambda x: x.h * x.m**2, r"$h$ equal terms."),
    ),
)


def _variance(x: Inputs, scale: Tensor | float = 1.0) -> Float64[Tensor, ""]:
    """Var[scale · q·k] over all entries at once."""
    mean = _over_both(x, lambda q, k: scale * (q * k).sum(1))
    return _over_both(x, lambda q, k: (scale * (q * k).sum(1) - mean) ** 2)


def _covariances(x: Inputs) -> Float64[Tensor, "h h"]:
    """Cov[q_i k_i, q_j k_j] over all entries at once."""
    mean = _over_both(x, lambda q, k: q * k)
    return _over_both(x, lambda q, k: (q * k - mean)[:, :, None] * (q * k - mean)[:, None, :])


def _pair_variances(x: Inputs) -> Float64[Tensor, " h"]:
    """Var[q_i k_i] = E[(q_i k_i − E[q_i k_i])²]."""
    means = _over_pair(x, lambda q, k: q * k)
    return torch.stack([_pair_variance(x, i, mean) for i, mean in enumerate(means)])


def _pair_variance(x: Inputs, i: int, mean: Float64[Tensor, ""]) -> Float64[Tensor, ""]:
    both = x.mu[i].repeat(2)
    return expect(lambda z: (z.prod(1) - mean) ** 2, both, x.sigma, nodes=_NODES)


PRODUCT_VARIANCE = Derivation(
    name="product-variance",
    title="Variance of the product of a query and a key",
    given=_GIVEN,
    draw=_draw_normal,
    steps=(
        Step(
            r"\mathrm{Var}\left[q \cdot k\right]",
            _variance,
            r"Evaluated as one integral over all $2h$ entries.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \sum_{j=1}^{h} \mathrm{Cov}\left[q_i k_i, q_j k_j\right]",
            lambda x: _covariances(x).sum(),
            r"The variance of the sum $\sum_i q_i k_i$.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \mathrm{Var}\left[q_i k_i\right]",
            lambda x: _pair_variances(x).sum(),
            r"Entries are independent, so that covariances with $i \neq j$ are 0.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( \mathbb{E}\left[q_i^2 k_i^2\right] - "
            r"\mathbb{E}\left[q_i k_i\right]^2 \right)",
            lambda x: (
                _over_pair(x, lambda q, k: q**2 * k**2) - _over_pair(x, lambda q, k: q * k) ** 2
            ).sum(),
            r"$\mathrm{Var}[a] = \mathbb{E}[a^2] - \mathbb{E}[a]^2$.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( \mathbb{E}\left[q_i^2\right] \mathbb{E}\left[k_i^2\right] - "
            r"\mathbb{E}\left[q_i\right]^2 \mathbb{E}\left[k_i\right]^2 \right)",
            lambda x: (
                _over_entry(x, 2) * _over_entry(x, 2)
                - _over_entry(x, 1) ** 2 * _over_entry(x, 1) ** 2
            ).sum(),
            r"$q_i$ and $k_i$ are independent.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( (\sigma^2 + \mu_i^2)^2 - \mu_i^4 \right)",
            lambda x: ((x.sigma**2 + x.mu**2) ** 2 - x.mu**4).sum(),
            r"$\mathbb{E}[q_i^2] = \mathrm{Var}[q_i] + \mathbb{E}[q_i]^2 = \sigma^2 + \mu_i^2$, "
            r"and the same for $k_i$.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( \sigma^4 + 2 \sigma^2 \mu_i^2 \right)",
            lambda x: (x.sigma**4 + 2 * x.sigma**2 * x.mu**2).sum(),
            r"Expand the square; $\mu_i^4$ cancels.",
        ),
        Step(
            r"= h \sigma^4 + 2 \sigma^2 \lVert \mu \rVert^2",
            lambda x: x.h * x.sigma**4 + 2 * x.sigma**2 * torch.linalg.vector_norm(x.mu) ** 2,
            r"Sum over $i$.",
        ),
        Step(
            r"\mathrm{Var}\left[\frac{q \cdot k}{\sqrt h}\right]",
            lambda x: _variance(x, scale=1 / x.h.sqrt()),
            r"The scaled product. Evaluated as one integral over all $2h$ entries.",
        ),
        Step(
            r"= \frac{1}{h} \, \mathrm{Var}\left[q \cdot k\right]",
            lambda x: _variance(x) / x.h,
            "A factor leaves the variance as its square.",
        ),
        Step(
            r"= \sigma^4 + \frac{2 \sigma^2 \lVert \mu \rVert^2}{h}",
            lambda x: x.sigma**4 + 2 * x.sigma**2 * (x.mu**2).sum() / x.h,
            r"For $\mu = 0$ this is $\sigma^4$ at any width; for equal entries $m$ it is "
            r"$\sigma^4 + 2 \sigma^2 m^2$. So the division by $\sqrt h$ keeps scores of one size.",
        ),
    ),
)


def _course_numbers(generator: Generator) -> Inputs:  # noqa: ARG001
    """The numbers of the course; nothing is random."""
    return Inputs(
        h1=_vector(5, 1),
        h2=_vector(4, 3),
        h3=_vector(-2, 6),
        W_q=_matrix((1, 0), (2, 9)),
        W_k=_matrix((0, 1), (6, 0)),
        W_v=_matrix((4, 3), (9, 1)),
    )


def _vector(*entries: float) -> Float64[Tensor, " d"]:
    return torch.tensor(entries, dtype=torch.float64)


def _matrix(*rows: tuple[float, ...]) -> Float64[Tensor, "n m"]:
    return torch.tensor(rows, dtype=torch.float64)


def _score(x: Inputs, h: Float64[Tensor, "2"]) -> Float64[Tensor, ""]:
    """(W_q h_2)ᵀ (W_k h)."""
    score: Tensor = (x.W_q @ x.h2) @ (x.W_k @ h)
    return score


def _softmax_output(x: Inputs) -> Float64[Tensor, "2"]:
    """Σ_j softmax_j(scores) W_v h_j."""
    states = [x.h1, x.h2, x.h3]
    weights = torch.stack([_score(x, h) for h in states]).softmax(0)
    return torch.stack([w * (x.W_v @ h) for w, h in zip(weights, states, strict=True)]).sum(0)


PRODUCTS_BY_HAND = Derivation(
    name="products-by-hand",
    title="Queries, keys and values by hand",
    given="$h_1 = (5, 1)$, $h_2 = (4, 3)$, $h_3 = (-2, 6)$, all as columns, and the matrices "
    "$W_q$, $W_k$, $W_v$ that the first lines show. $q_i = W_q h_i$, $k_i = W_k h_i$, $v_i = W_v "
    r"h_i$. The query is that of the second state; its scores $\hat\alpha_{2,j} = q_2^\top k_j$ "
    "are not scaled. These are the numbers of the course, so that nothing is drawn.",
    draw=_course_numbers,
    steps=(
        Step(r"q_2 = W_q h_2", lambda x: x.W_q @ x.h2, "The query of the second state."),
        Step(
            r"= \begin{pmatrix} 1 & 0 \\ 2 & 9 \end{pmatrix} \begin{pmatrix} 4 \\ 3 \end{pmatrix}",
            lambda x: _matrix((1, 0), (2, 9)) @ _vector(4, 3),
            "Insert the numbers.",
        ),
        Step(
            r"= \begin{pmatrix} 1 \cdot 4 + 0 \cdot 3 \\ 2 \cdot 4 + 9 \cdot 3 \end{pmatrix}",
            lambda x: _vector(1 * 4 + 0 * 3, 2 * 4 + 9 * 3),
            "Each row times the column.",
        ),
        Step(r"= \begin{pmatrix} 4 \\ 35 \end{pmatrix}", lambda x: _vector(4, 35), "Add."),
        Step(r"k_1 = W_k h_1", lambda x: x.W_k @ x.h1, "The keys. That of the first state:"),
        Step(
            r"= \begin{pmatrix} 0 & 1 \\ 6 & 0 \end{pmatrix} \begin{pmatrix} 5 \\ 1 \end{pmatrix}",
            lambda x: _matrix((0, 1), (6, 0)) @ _vector(5, 1),
            "Insert the numbers.",
        ),
        Step(
            r"= \begin{pmatrix} 0 \cdot 5 + 1 \cdot 1 \\ 6 \cdot 5 + 0 \cdot 1 \end{pmatrix}",
            lambda x: _vector(0 * 5 + 1 * 1, 6 * 5 + 0 * 1),
            "Each row times the column.",
        ),
        Step(r"= \begin{pmatrix} 1 \\ 30 \end{pmatrix}", lambda x: _vector(1, 30), "Add."),
        Step(r"k_2 = W_k h_2", lambda x: x.W_k @ x.h2, "That of the second:"),
        Step(
            r"= \begin{pmatrix} 0 \cdot 4 + 1 \cdot 3 \\ 6 \cdot 4 + 0 \cdot 3 \end{pmatrix}",
            lambda x: _vector(0 * 4 + 1 * 3, 6 * 4 + 0 * 3),
            "Each row times the column.",
        ),
        Step(r"= \begin{pmatrix} 3 \\ 24 \end{pmatrix}", lambda x: _vector(3, 24), "Add."),
        Step(r"k_3 = W_k h_3", lambda x: x.W_k @ x.h3, "That of the third:"),
        Step(
            r"= \begin{pmatrix} 0 \cdot (-2) + 1 \cdot 6 \\ 6 \cdot (-2) + 0 \cdot 6 \end{pmatrix}",
            lambda x: _vector(0 * (-2) + 1 * 6, 6 * (-2) + 0 * 6),
            "Each row times the column.",
        ),
        Step(r"= \begin{pmatrix} 6 \\ -12 \end{pmatrix}", lambda x: _vector(6, -12), "Add."),
        Step(
            r"\hat\alpha_{2,1} = (W_q h_2)^\top (W_k h_1)",
            lambda x: _score(x, x.h1),
            "The scores: query times key.",
        ),
        Step(
            r"= 4 \cdot 1 + 35 \cdot 30",
            lambda x: torch.tensor(4 * 1 + 35 * 30),
            r"$q_2^\top k_1$, entry by entry.",
        ),
        Step(r"= 1054", lambda x: torch.tensor(1054), r"$4 + 1050$."),
        Step(
            r"\hat\alpha_{2,2} = (W_q h_2)^\top (W_k h_2)",
            lambda x: _score(x, x.h2),
            "The state's score for itself:",
        ),
        Step(
            r"= 4 \cdot 3 + 35 \cdot 24",
            lambda x: torch.tensor(4 * 3 + 35 * 24),
            r"$q_2^\top k_2$, entry by entry.",
        ),
        Step(r"= 852", lambda x: torch.tensor(852), r"$12 + 840$."),
        Step(
            r"\hat\alpha_{2,3} = (W_q h_2)^\top (W_k h_3)",
            lambda x: _score(x, x.h3),
            "And for the third state:",
        ),
        Step(
            r"= 4 \cdot 6 + 35 \cdot (-12)",
            lambda x: torch.tensor(4 * 6 + 35 * (-12)),
            r"$q_2^\top k_3$, entry by entry.",
        ),
        Step(r"= -396", lambda x: torch.tensor(-396), r"$24 - 420$."),
        Step(
            r"v_1 = W_v h_1",
            lambda x: x.W_v @ x.h1,
            r"The first score is the largest: argmax gives the weights $(1, 0, 0)$, and the output "
            r"$h_2' = v_1$.",
        ),
        Step(
            r"= \begin{pmatrix} 4 & 3 \\ 9 & 1 \end{pmatrix} \begin{pmatrix} 5 \\ 1 \end{pmatrix}",
            lambda x: _matrix((4, 3), (9, 1)) @ _vector(5, 1),
            "Insert the numbers.",
        ),
        Step(
            r"= \begin{pmatrix} 4 \cdot 5 + 3 \cdot 1 \\ 9 \cdot 5 + 1 \cdot 1 \end{pmatrix}",
            lambda x: _vector(4 * 5 + 3 * 1, 9 * 5 + 1 * 1),
            "Each row times the column.",
        ),
        Step(r"= \begin{pmatrix} 23 \\ 46 \end{pmatrix}", lambda x: _vector(23, 46), "Add."),
        Step(
            r"v_2 = W_v h_2",
            lambda x: x.W_v @ x.h2,
            "For comparison, softmax instead of argmax. It needs the other values:",
        ),
        Step(
            r"= \begin{pmatrix} 4 \cdot 4 + 3 \cdot 3 \\ 9 \cdot 4 + 1 \cdot 3 \end{pmatrix}",
            lambda x: _vector(4 * 4 + 3 * 3, 9 * 4 + 1 * 3),
            "Each row times the column.",
        ),
        Step(r"= \begin{pmatrix} 25 \\ 39 \end{pmatrix}", lambda x: _vector(25, 39), "Add."),
        Step(r"v_3 = W_v h_3", lambda x: x.W_v @ x.h3, "And the third:"),
        Step(
            r"= \begin{pmatrix} 4 \cdot (-2) + 3 \cdot 6 \\ 9 \cdot (-2) + 1 \cdot 6 \end{pmatrix}",
            lambda x: _vector(4 * (-2) + 3 * 6, 9 * (-2) + 1 * 6),
            "Each row times the column.",
        ),
        Step(r"= \begin{pmatrix} 10 \\ -12 \end{pmatrix}", lambda x: _vector(10, -12), "Add."),
        Step(
            r"h_2' = \sum_{j=1}^{3} \mathrm{softmax}_j(1054, 852, -396) \, v_j",
            _softmax_output,
            "The output with softmax.",
        ),
        Step(
            r"= \frac{v_1 + e^{-202} \, v_2 + e^{-1450} \, v_3}{1 + e^{-202} + e^{-1450}}",
            lambda x: (
                (
                    _vector(23, 46)
                    + _vector(-202).exp() * _vector(25, 39)
                    + _vector(-1450).exp() * _vector(10, -12)
                )
                / (1 + _vector(-202).exp() + _vector(-1450).exp())
            ),
            r"Divide numerator and denominator by $e^{1054}$: $852 - 1054 = -202$ and "
            r"$-396 - 1054 = -1450$.",
        ),
        Step(
            r"\approx \begin{pmatrix} 23 \\ 46 \end{pmatrix}",
            lambda x: _vector(23, 46),
            r"The others have weight $2 \cdot 10^{-88}$. Values differ by at most 58, so that the "
            r"difference is at most $10^{-85}$: softmax and argmax agree, because scores are not "
            r"scaled.",
            remainder=lambda x: _vector(1e-85, 1e-85),
        ),
    ),
)

DERIVATIONS = (PRODUCT_MEAN, PRODUCT_VARIANCE, PRODUCTS_BY_HAND)
