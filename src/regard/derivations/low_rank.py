"""Attention whose map has a low rank."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.counting import Counter, operations
from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, size, sizes
from regard.derivations.tex_scope import Letter


def _factors(p: Float64[Tensor, "n n"], k: int) -> tuple[Tensor, Tensor, Tensor]:
    """U, the singular values and W of P = U Σ Wᵀ, the first k of them."""
    u, s, wt = torch.linalg.svd(p)
    return u[:, :k], s[:k], wt[:k].T


def _draw_softmax_map(generator: Generator) -> Inputs:
    """Draw a softmax map of rank k (only k queries are different), with its SVD, and values."""
    n, h = size(generator, 1, 6), size(generator, 1, 4)
    k = size(generator, 1, min(n, 3))
    query: Float64[Tensor, "n h"] = normal(generator, k, h)[torch.arange(n) % k]
    key: Float64[Tensor, "n h"] = normal(generator, n, h)
    p = (query @ key.T / h**0.5).softmax(1)
    u, s, w = _factors(p, k)
    return Inputs(P=p, U=u, S=s, W=w, V=normal(generator, n, h), **sizes(n=n, h=h, k=k))


def _from_right(c: Counter, x: Inputs) -> Float64[Tensor, "n h"]:
    """U (Σ (Wᵀ V))."""
    return c.product(x.U, c.times_rows(x.S, c.product(x.W.T, x.V)))


def _letters(x: Inputs) -> dict[str, Letter]:
    """Σ, its entries, and the columns of U and W, also of the last and of all before it."""
    last = {"sigmak": x.S[-1], "uk": x.U[:, -1], "wk": x.W[:, -1], "Wk-1": x.W[:, :-1]}
    return {"Sigma": x.S.diag(), "sigma": x.S, "u": x.U.T, "w": x.W.T, **last}


ATTENTION_FROM_SVD = Derivation(
    name="attention-from-svd",
    title="Linear attention from a singular value decomposition",
    given=r"An attention map $P \in \mathbb{R}^{n \times n}$ of rank $k$ and its singular value "
    r"decomposition $P = U \Sigma W^\top$, both given: $U, W \in \mathbb{R}^{n \times k}$ have "
    r"orthonormal columns $u_r$, $w_r$, and $\Sigma$ is diagonal with $\sigma_1, \ldots, "
    r"\sigma_k$. Values $V \in \mathbb{R}^{n \times h}$; the course also writes $d$ for $h$. The "
    r"cost is the number of multiplications, counted in explicit loops. Computing the "
    r"decomposition itself takes $O(n^3)$, which the question leaves out.",
    draw=_draw_softmax_map,
    letters=_letters,
    steps=(
        Step(r"P V", "The output of attention."),
        Step(
            r"= \left( \sum_{r=1}^{k} \sigma_r \, u_r w_r^\top \right) V",
            r"A matrix of rank $k$ has $k$ singular values above 0; the other terms vanish.",
        ),
        Step(r"= U \Sigma W^\top \, V", "The same sum as a product of matrices."),
        Step(
            r"= U \left( \Sigma \left( W^\top V \right) \right)",
            r"Matrix products are associative. From the right, no $n \times n$ matrix occurs: "
            r"$W^\top V$ and $\Sigma (W^\top V)$ are $k \times h$.",
        ),
        Step(
            r"\mathrm{cost}\left(P V\right)",
            "The cost of the usual way, counted.",
            library=lambda x: operations(lambda c: c.product(x.P, x.V)),
        ),
        Step(r"= n^2 h", r"$n h$ entries, each a sum of $n$ products."),
        Step(
            r"\mathrm{cost}\left(U (\Sigma (W^\top V))\right)",
            "The cost from the right, counted.",
            library=lambda x: operations(lambda c: _from_right(c, x)),
        ),
        Step(
            r"= k n h + k h + n k h",
            r"$W^\top V$, the diagonal $\Sigma$, and $U$ times a $k \times h$ matrix.",
        ),
        Step(
            r"\leq 3 n k h",
            r"$1 \leq n$. So it is $O(nkh)$, linear in $n$ for a fixed rank.",
            library=lambda x: 3 * x.n * x.k * x.h,
            worst=WorstCase(r"$n = 1$", lambda: Inputs(sizes(n=1, k=1, h=3))),
        ),
    ),
)


def _draw_product_map(generator: Generator) -> Inputs:
    """Draw queries and keys whose products have rank k, the SVD of the map, and values."""
    n, h = size(generator, 1, 6), size(generator, 1, 4)
    k = size(generator, 1, min(n, h))
    query: Float64[Tensor, "n h"] = normal(generator, n, k) @ normal(generator, k, h)
    key: Float64[Tensor, "n h"] = normal(generator, n, h)
    p = query @ key.T / h**0.5
    u, s, w = _factors(p, k)
    value: Float64[Tensor, "n h"] = normal(generator, n, h)
    projections = {"C": w.T / h**0.5, "D": w.T}
    return Inputs(
        P=p, Q=query, K=key, V=value, U=u, S=s, W=w, **projections, **sizes(n=n, h=h, k=k)
    )


def _projected(c: Counter, x: Inputs) -> Float64[Tensor, "n h"]:
    """Q (C K)ᵀ (D V), from the small matrices."""
    keys, values = c.product(x.C, x.K), c.product(x.D, x.V)
    return c.product(c.product(x.Q, keys.T), values)


ATTENTION_BY_TWO_PROJECTIONS = Derivation(
    name="attention-by-two-projections",
    title="Linear attention by two projections",
    given=r"$Q, K, V \in \mathbb{R}^{n \times h}$ and $P = \frac{Q K^\top}{\sqrt h}$ of rank $k$, "
    r"without softmax. The course says to ignore the scaling too, but keeps $\sqrt h$ in $P$; here "
    r"it is kept. Wanted are $C, D \in \mathbb{R}^{k \times n}$ with $P V = Q (C K)^\top D V$. "
    r"Proof: let $P = U \Sigma W^\top$ be the singular value decomposition, truncated to the $k$ "
    r"values above 0, with $U, W \in \mathbb{R}^{n \times k}$. Choose $C = \frac{1}{\sqrt h} "
    r"W^\top$ and $D = W^\top$.",
    draw=_draw_product_map,
    letters=_letters,
    steps=(
        Step(
            r"Q \left( C K \right)^\top D V",
            r"The right-hand side. $C K$ and $D V$ are $k \times h$.",
        ),
        Step(r"= Q K^\top C^\top D V", "The transpose of a product reverses its order."),
        Step(
            r"= \frac{1}{\sqrt h} \, Q K^\top \, W W^\top V",
            r"Insert $C^\top = \frac{1}{\sqrt h} W$ and $D = W^\top$.",
        ),
        Step(r"= P \, W W^\top V", r"$\frac{1}{\sqrt h} Q K^\top$ is $P$."),
        Step(
            r"= U \Sigma W^\top W W^\top V",
            r"The decomposition of $P$, exact because its rank is $k$.",
        ),
        Step(r"= U \Sigma W^\top V", r"Columns of $W$ are orthonormal: $W^\top W = I_k$."),
        Step(r"= P V", "The left-hand side."),
        Step(
            r"\mathrm{cost}\left(Q (C K)^\top (D V)\right)",
            r"Multiplications, counted in explicit loops, if the $k \times h$ matrices are made "
            "first.",
            library=lambda x: operations(lambda c: _projected(c, x)),
        ),
        Step(
            r"= k n h + k n h + n h k + n k h",
            r"$C K$, $D V$, $Q$ times a $h \times k$ matrix, and the $n \times k$ result times a "
            r"$k \times h$ matrix.",
        ),
        Step(r"= 4 n k h", r"$O(nkh)$: linear in $n$ for a fixed rank."),
        Step(
            r"\lVert P - P W_{k-1} W_{k-1}^\top \rVert_F^2",
            r"If $C$ and $D$ have a row too few, with $W_{k-1}$ the first $k - 1$ columns of $W$:",
        ),
        Step(
            r"= \lVert \sigma_k u_k w_k^\top \rVert_F^2",
            r"$W_{k-1} W_{k-1}^\top$ keeps the first $k - 1$ terms of $P$ and drops the last.",
        ),
        Step(
            r"= \sigma_k^2",
            r"$u_k$ and $w_k$ have norm 1. So the rank is needed: fewer rows are exact only if "
            r"$\sigma_k = 0$.",
        ),
    ),
)

DERIVATIONS = (ATTENTION_FROM_SVD, ATTENTION_BY_TWO_PROJECTIONS)
