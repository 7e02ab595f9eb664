"""Softmax attention by a Gaussian kernel, and by its random Fourier features."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.counting import Counter, operations
from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, ones, size, sizes
from regard.derivations.tex_scope import Law, Letter, Normal

_NODES = 24


def _draw_tokens(generator: Generator) -> Inputs:
    n, d, m = size(generator, 1, 4), size(generator, 1, 4), size(generator, 1, 3)
    query: Float64[Tensor, "n d"] = normal(generator, n, d)
    key: Float64[Tensor, "n d"] = normal(generator, n, d)
    value: Float64[Tensor, "n m"] = normal(generator, n, m)
    return Inputs(
        Q=query, K=key, V=value, q=query[0], k=key[0], s2=_variance(d), **sizes(N=n, D=d, M=m)
    )


def _variance(d: int) -> Float64[Tensor, ""]:
    """σ² = √D."""
    return torch.tensor(float(d), dtype=torch.float64).sqrt()


def _letters(x: Inputs) -> dict[str, Letter]:
    """σ."""
    return {"sigma": x.s2.sqrt()}


def _tokens(x: Inputs) -> dict[str, range]:
    """Indices of tokens."""
    return dict.fromkeys("ij", range(1, int(x.N) + 1))


GAUSSIAN_KERNEL = Derivation(
    name="gaussian-kernel",
    title="Softmax similarity by a Gaussian kernel",
    given=r"A query and a key $q, k \in \mathbb{R}^D$, $\sigma^2 = \sqrt D$, and the Gaussian "
    r"kernel $\mathcal{K}(q, k) = e^{-\lVert q - k \rVert^2 / 2 \sigma^2}$. In the last lines, "
    r"queries $Q_i$, keys $K_j$ and values $V_j$ of $N$ tokens.",
    draw=_draw_tokens,
    letters=_letters,
    indices=_tokens,
    defined={"mathcal K(q,k)": r"e^{-\lVert q - k \rVert^2 / 2 \sigma^2}"},
    steps=(
        Step(r"\lVert q - k \rVert^2", "The squared distance."),
        Step(r"= (q - k) \cdot (q - k)", "The norm as a product."),
        Step(r"= \lVert q \rVert^2 - 2 \, q \cdot k + \lVert k \rVert^2", "Multiply out."),
        Step(r"q \cdot k", "Solve for the product."),
        Step(
            r"= \frac{1}{2} \left( \lVert q \rVert^2 + \lVert k \rVert^2 - \lVert q - k \rVert^2 "
            r"\right)",
            "Nothing is approximated.",
        ),
        Step(r"e^{q \cdot k / \sqrt D}", "The similarity of softmax attention."),
        Step(r"= e^{q \cdot k / \sigma^2}", r"$\sigma^2 = \sqrt D$."),
        Step(
            r"= e^{\left( \lVert q \rVert^2 + \lVert k \rVert^2 - \lVert q - k \rVert^2 \right) / "
            r"2 \sigma^2}",
            "Insert the product.",
        ),
        Step(
            r"= e^{\lVert q \rVert^2 / 2 \sigma^2} \; \mathcal{K}(q, k) \; "
            r"e^{\lVert k \rVert^2 / 2 \sigma^2}",
            "The exponential of a sum is a product: a factor of the query, the kernel, and a "
            "factor of the key.",
        ),
        Step(
            r"V_i' = \frac{\sum_j e^{Q_i \cdot K_j / \sqrt D} \, V_j}{\sum_j e^{Q_i \cdot K_j / "
            r"\sqrt D}}",
            "In attention, normalized:",
        ),
        Step(
            r"= \frac{\sum_j e^{\lVert Q_i \rVert^2 / 2 \sigma^2} \, \mathcal{K}(Q_i, K_j) \, "
            r"e^{\lVert K_j \rVert^2 / 2 \sigma^2} \, V_j}{\sum_j e^{\lVert Q_i \rVert^2 / 2 "
            r"\sigma^2} \, \mathcal{K}(Q_i, K_j) \, e^{\lVert K_j \rVert^2 / 2 \sigma^2}}",
            "Insert the kernel.",
        ),
        Step(
            r"= \frac{\sum_j \mathcal{K}(Q_i, K_j) \, e^{\lVert K_j \rVert^2 / 2 \sigma^2} \, V_j}"
            r"{\sum_j \mathcal{K}(Q_i, K_j) \, e^{\lVert K_j \rVert^2 / 2 \sigma^2}}",
            "The factor of the query cancels. That of the key does not: it gives long keys more "
            "weight.",
        ),
    ),
)


def _draw_waves(generator: Generator) -> Inputs:
    """Short queries and keys, so that normalizers of few features stay away from 0."""
    n, d, m, r = (size(generator, 1, high) for high in (4, 2, 3, 2))
    query: Float64[Tensor, "n d"] = 0.5 * normal(generator, n, d)
    key: Float64[Tensor, "n d"] = 0.5 * normal(generator, n, d)
    waves: Float64[Tensor, "r d"] = normal(generator, r, d) / _variance(d).sqrt()
    value: Float64[Tensor, "n m"] = normal(generator, n, m)
    counts = sizes(N=n, D=d, M=m, R=r)
    return Inputs(Q=query, K=key, V=value, w=waves, q=query[0], k=key[0], s2=_variance(d), **counts)


def linear_attention(c: Counter, x: Inputs) -> Float64[Tensor, "n m"]:
    """Return attention by random features, and count the operations.

    The factor 1/√R of all features cancels and is left out.
    """
    phases = {name: c.product(x[name], x.w.T) for name in ("Q", "K")}
    of_queries, of_keys = (torch.cat([p.sin(), p.cos()], 1) for p in phases.values())
    factors = [c.divided(c.dot(key, key), 2 * x.s2).exp() for key in x.K]
    of_keys = c.times_rows(torch.stack(factors), of_keys)
    top = c.product(of_queries, c.product(of_keys.T, x.V))
    bottom = c.product(of_queries, of_keys.sum(0)[:, None])
    return c.scaled(top, bottom)


def _cost(n: Tensor, d: Tensor, m: Tensor, r: Tensor) -> Float64[Tensor, ""]:
    """Count the operations of random features with these sizes."""
    shapes = {"Q": (n, d), "K": (n, d), "V": (n, m), "w": (r, d)}
    inputs = Inputs(ones(shapes), s2=torch.ones(()))
    return operations(lambda c: linear_attention(c, inputs))


def _laws(x: Inputs) -> dict[str, Law]:
    """All directions, and one with the covariance of the course (`\\tilde w`)."""
    return {
        "w": Normal(torch.zeros_like(x.w), x.s2.rsqrt(), _NODES),
        "tilde w": Normal(torch.zeros_like(x.q), x.s2.sqrt(), 2 * _NODES),
    }


RANDOM_FEATURES_COST = Derivation(
    name="random-features-cost",
    title="Attention by random Fourier features, and its cost",
    given=r"Queries and keys in $\mathbb{R}^D$, values in $\mathbb{R}^M$, $N$ tokens, $\sigma^2 = "
    r"\sqrt D$. $R$ random directions $w_r$ (the course writes $D_{\mathrm{random}}$ for $R$) "
    r"give the features $\phi(q) = \frac{1}{\sqrt R} (\sin w_1^\top q, \ldots, \sin w_R^\top q, "
    r"\cos w_1^\top q, \ldots, \cos w_R^\top q)$. They are drawn from $\mathcal{N}(0, "
    r"\frac{1}{\sigma^2} I)$; the course has $\mathcal{N}(0, \sigma^2 I)$, which estimates "
    "another kernel, as shown. Expectations are evaluated by Gauss–Hermite quadrature; the cost "
    "is the number of multiplications and divisions, counted in explicit loops.",
    draw=_draw_waves,
    letters=lambda x: {**_letters(x), "cost": _cost},
    indices=_tokens,
    laws=_laws,
    defined={"phi(u)": r"\frac{1}{\sqrt R} \left[ \sin(w u), \cos(w u) \right]"},
    steps=(
        Step(
            r"\mathbb{E}\left[ \phi(q)^\top \phi(k) \right]",
            "Evaluated over all entries of all directions at once.",
        ),
        Step(
            r"= \frac{1}{R} \sum_{r=1}^{R} \mathbb{E}\left[ \sin(w_r^\top q) \sin(w_r^\top k) + "
            r"\cos(w_r^\top q) \cos(w_r^\top k) \right]",
            "Insert the features; all directions have one distribution.",
        ),
        Step(
            r"= \mathbb{E}\left[ \cos\left( w_1^\top (q - k) \right) \right]",
            r"$\cos a \cos b + \sin a \sin b = \cos(a - b)$, the same for each $r$.",
        ),
        Step(
            r"= \prod_{e=1}^{D} \mathbb{E}\left[ \cos\left( w_{1e} (q_e - k_e) \right) \right]",
            r"The real part of $\prod_e \mathbb{E}[e^{i w_{1e} (q_e - k_e)}]$: entries are "
            "independent, and the sine of a symmetric variable has mean 0.",
        ),
        Step(
            r"= \prod_{e=1}^{D} e^{-(q_e - k_e)^2 / 2 \sigma^2}",
            r"Characteristic function of a normal variable of variance $s^2$: $\mathbb{E}[\cos(w "
            r"u)] = e^{-s^2 u^2 / 2}$, here with $s^2 = 1 / \sigma^2$.",
        ),
        Step(r"= e^{-\lVert q - k \rVert^2 / 2 \sigma^2}", r"The Gaussian kernel."),
        Step(
            r"\mathbb{E}\left[ \cos\left( \tilde w^\top (q - k) \right) \right]",
            r"With the covariance of the course, $\tilde w \sim \mathcal{N}(0, \sigma^2 I)$:",
        ),
        Step(
            r"= e^{-\sigma^2 \lVert q - k \rVert^2 / 2}",
            r"Now $s^2 = \sigma^2$: not the kernel, except for $\sigma = 1$.",
        ),
        Step(
            r"V_i'^\top = \frac{\sum_j e^{\lVert Q_i \rVert^2 / 2 \sigma^2} \, \phi(Q_i)^\top "
            r"\phi(K_j) \, e^{\lVert K_j \rVert^2 / 2 \sigma^2} \, V_j^\top}{\sum_j e^{\lVert Q_i "
            r"\rVert^2 / 2 \sigma^2} \, \phi(Q_i)^\top \phi(K_j) \, e^{\lVert K_j \rVert^2 / 2 "
            r"\sigma^2}}",
            r"Attention with the features in place of the kernel: an approximation of softmax "
            "attention. Evaluated for one draw, pair by pair.",
        ),
        Step(
            r"= \frac{\phi(Q_i)^\top \left( \sum_j e^{\lVert K_j \rVert^2 / 2 \sigma^2} \, "
            r"\phi(K_j) V_j^\top \right)}{\phi(Q_i)^\top \left( \sum_j e^{\lVert K_j \rVert^2 / 2 "
            r"\sigma^2} \, \phi(K_j) \right)}",
            r"The factor of the query cancels, and $\phi(Q_i)$ leaves the sums, which are now the "
            "same for all queries.",
        ),
        Step(r"\mathrm{cost}(N, D, M, R)", r"All $V_i'$ in this order, counted."),
        Step(
            r"= 2 N D R + (N D + N + 2 N R) + 2 N R M + (2 N R M + 2 N R + N M)",
            r"Phases $w_r^\top x$ of queries and keys; factors of keys; the sum of $2R \times M$ "
            "matrices; numerators, denominators and divisions.",
        ),
        Step(r"= N \left( 2 D R + 4 M R + 4 R + D + M + 1 \right)", "Collect terms."),
        Step(
            r"\leq 8 N (M + D) R",
            r"$4 R \leq 2 (M + D) R$, $D + M \leq (M + D) R$ and $1 \leq \frac{1}{2} (M + D) R$. "
            "So the cost is $O(N (M + D) R)$, linear in $N$; softmax takes $O(N^2 (M + D))$.",
            library=lambda x: 8 * x.N * (x.M + x.D) * x.R,
            worst=WorstCase(r"$D = M = R = 1$", lambda: Inputs(sizes(N=4, D=1, M=1, R=1)), 0.81),
        ),
    ),
)


DERIVATIONS = (GAUSSIAN_KERNEL, RANDOM_FEATURES_COST)
