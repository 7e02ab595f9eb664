"""The product of a query and a key: its mean, its variance, and an example by hand."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, number, size, sizes
from regard.derivations.tex_scope import Law, Letter, Normal

_NODES = 3
"""Number of quadrature nodes; exact, as no entry has a power above 4."""


def _draw_normal(generator: Generator) -> Inputs:
    h = size(generator, 1, 3)
    mu: Float64[Tensor, " h"] = normal(generator, h)
    return Inputs(mu=mu, sigma=number(generator, 0.3, 2), m=number(generator, 0.2, 2), **sizes(h=h))


def _laws(x: Inputs) -> dict[str, Law]:
    """The distribution of both vectors."""
    return dict.fromkeys("qk", Normal(x.mu, x.sigma, _NODES))


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
    indices=lambda x: {"i": range(1, int(x.h) + 1)},
    laws=_laws,
    steps=(
        Step(
            r"\mathbb{E}\left[q \cdot k\right]", r"Evaluated as one integral over all $2h$ entries."
        ),
        Step(
            r"= \sum_{i=1}^{h} \mathbb{E}\left[q_i k_i\right]",
            "The expectation of a sum is the sum of expectations.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \mathbb{E}\left[q_i\right] \mathbb{E}\left[k_i\right]",
            r"$q_i$ and $k_i$ are independent.",
        ),
        Step(r"= \sum_{i=1}^{h} \mu_i^2", r"Both have mean $\mu_i$."),
        Step(
            r"= \lVert \mu \rVert^2", r"The squared norm of the mean. $\sigma$ has no part in it."
        ),
        Step(r"\sum_{i=1}^{h} m^2", r"If every entry of $\mu$ is one number $m$:"),
        Step(r"= h m^2", r"$h$ equal terms."),
    ),
)


PRODUCT_VARIANCE = Derivation(
    name="product-variance",
    title="Variance of the product of a query and a key",
    given=_GIVEN,
    draw=_draw_normal,
    indices=lambda x: {"i": range(1, int(x.h) + 1)},
    laws=_laws,
    steps=(
        Step(
            r"\mathrm{Var}\left[q \cdot k\right]",
            r"Evaluated as one integral over all $2h$ entries.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \sum_{j=1}^{h} \mathrm{Cov}\left[q_i k_i, q_j k_j\right]",
            r"The variance of the sum $\sum_i q_i k_i$.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \mathrm{Var}\left[q_i k_i\right]",
            r"Entries are independent, so that covariances with $i \neq j$ are 0.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( \mathbb{E}\left[q_i^2 k_i^2\right] - "
            r"\mathbb{E}\left[q_i k_i\right]^2 \right)",
            r"$\mathrm{Var}[a] = \mathbb{E}[a^2] - \mathbb{E}[a]^2$.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( \mathbb{E}\left[q_i^2\right] \mathbb{E}\left[k_i^2\right] - "
            r"\mathbb{E}\left[q_i\right]^2 \mathbb{E}\left[k_i\right]^2 \right)",
            r"$q_i$ and $k_i$ are independent.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( (\sigma^2 + \mu_i^2)^2 - \mu_i^4 \right)",
            r"$\mathbb{E}[q_i^2] = \mathrm{Var}[q_i] + \mathbb{E}[q_i]^2 = \sigma^2 + \mu_i^2$, "
            r"and the same for $k_i$.",
        ),
        Step(
            r"= \sum_{i=1}^{h} \left( \sigma^4 + 2 \sigma^2 \mu_i^2 \right)",
            r"Expand the square; $\mu_i^4$ cancels.",
        ),
        Step(r"= h \sigma^4 + 2 \sigma^2 \lVert \mu \rVert^2", r"Sum over $i$."),
        Step(
            r"\mathrm{Var}\left[\frac{q \cdot k}{\sqrt h}\right]",
            r"The scaled product. Evaluated as one integral over all $2h$ entries.",
        ),
        Step(
            r"= \frac{1}{h} \, \mathrm{Var}\left[q \cdot k\right]",
            "A factor leaves the variance as its square.",
        ),
        Step(
            r"= \sigma^4 + \frac{2 \sigma^2 \lVert \mu \rVert^2}{h}",
            r"For $\mu = 0$ this is $\sigma^4$ at any width; for equal entries $m$ it is "
            r"$\sigma^4 + 2 \sigma^2 m^2$. So the division by $\sqrt h$ keeps scores of one size.",
        ),
    ),
)


_STATES = ((5, 1), (4, 3), (-2, 6))
_MATRICES = {"q": ((1, 0), (2, 9)), "k": ((0, 1), (6, 0)), "v": ((4, 3), (9, 1))}


def _course_numbers(generator: Generator) -> Inputs:  # noqa: ARG001
    """Return the numbers of the course; nothing is random."""
    states = {f"h{i}": _vector(*state) for i, state in enumerate(_STATES, 1)}
    return Inputs(states | {f"W_{name}": _matrix(*rows) for name, rows in _MATRICES.items()})


def _vector(*entries: float) -> Float64[Tensor, " d"]:
    return torch.tensor(entries, dtype=torch.float64)


def _matrix(*rows: tuple[float, ...]) -> Float64[Tensor, "n m"]:
    return torch.tensor(rows, dtype=torch.float64)


def _named(x: Inputs) -> dict[str, Letter]:
    """The values and scores of all states."""
    states = [x.h1, x.h2, x.h3]
    scores = torch.stack([(x.W_q @ x.h2) @ (x.W_k @ h) for h in states])
    return {"v": torch.stack([x.W_v @ h for h in states]), "hat alpha2": scores}


def _sum(row: tuple[int, ...], column: tuple[int, ...]) -> tuple[str, int]:
    """Return a row times a column: the sum in TeX, and its value."""
    terms = [rf"{a} \cdot {b if b >= 0 else f'({b})'}" for a, b in zip(row, column, strict=True)]
    return " + ".join(terms), sum(a * b for a, b in zip(row, column, strict=True))


def _in_brackets(*entries: object) -> str:
    return r"\begin{pmatrix} " + r" \\ ".join(map(str, entries)) + r" \end{pmatrix}"


def _product(name: str, i: int, reason: str, *, inserted: bool = False) -> tuple[Step, ...]:
    """Return the lines of a query, key or value; if `inserted`, including one with the numbers."""
    rows, column = _MATRICES[name], _STATES[i - 1]
    sums, values = zip(*(_sum(row, column) for row in rows), strict=True)
    matrix = _in_brackets(*(" & ".join(map(str, row)) for row in rows))
    insert = Step(f"= {matrix} {_in_brackets(*column)}", "Insert the numbers.")
    return (
        Step(f"{name}_{i} = W_{name} h_{i}", reason),
        *((insert,) if inserted else ()),
        Step(f"= {_in_brackets(*sums)}", "Each row times the column."),
        Step(f"= {_in_brackets(*values)}", "Add."),
    )


def _score_of_key(j: int, reason: str) -> tuple[Step, ...]:
    """Return the lines of the score of the second state's query and a key."""
    query, key = (
        tuple(_sum(row, _STATES[i - 1])[1] for row in _MATRICES[name])
        for name, i in (("q", 2), ("k", j))
    )
    product, score = _sum(query, key)
    first, second = (a * b for a, b in zip(query, key, strict=True))
    return (
        Step(rf"\hat\alpha_{{2,{j}}} = (W_q h_2)^\top (W_k h_{j})", reason),
        Step(f"= {product}", rf"$q_2^\top k_{j}$, entry by entry."),
        Step(f"= {score}", f"${first} {'-' if second < 0 else '+'} {abs(second)}$."),
    )


PRODUCTS_BY_HAND = Derivation(
    name="products-by-hand",
    title="Queries, keys and values by hand",
    given="$h_1 = (5, 1)$, $h_2 = (4, 3)$, $h_3 = (-2, 6)$, all as columns, and the matrices "
    "$W_q$, $W_k$, $W_v$ that the first lines show. $q_i = W_q h_i$, $k_i = W_k h_i$, $v_i = W_v "
    r"h_i$. The query is that of the second state; its scores $\hat\alpha_{2,j} = q_2^\top k_j$ "
    "are not scaled. These are the numbers of the course, so that nothing is drawn.",
    draw=_course_numbers,
    letters=_named,
    indices=lambda _: {"j": range(1, 4)},
    steps=(
        *_product("q", 2, "The query of the second state.", inserted=True),
        *_product("k", 1, "The keys. That of the first state:", inserted=True),
        *_product("k", 2, "That of the second:"),
        *_product("k", 3, "That of the third:"),
        *_score_of_key(1, "The scores: query times key."),
        *_score_of_key(2, "The state's score for itself:"),
        *_score_of_key(3, "And for the third state:"),
        *_product(
            "v",
            1,
            r"The first score is the largest: argmax gives the weights $(1, 0, 0)$, and the output "
            r"$h_2' = v_1$.",
            inserted=True,
        ),
        *_product("v", 2, "For comparison, softmax instead of argmax. It needs the other values:"),
        *_product("v", 3, "And the third:"),
        Step(
            r"\lVert h_2' - v_1 \rVert = \lVert \sum_{j=1}^{3} \mathrm{softmax}_j"
            r"(\hat\alpha_{2,j}) \left( v_j - v_1 \right) \rVert",
            "How far the output with softmax is from that with argmax. Weights sum to 1.",
        ),
        Step(
            r"= \frac{\lVert e^{-202} \, (v_2 - v_1) + e^{-1450} \, (v_3 - v_1) \rVert}"
            r"{1 + e^{-202} + e^{-1450}}",
            r"Divide numerator and denominator by $e^{1054}$: $852 - 1054 = -202$ and "
            r"$-396 - 1054 = -1450$.",
        ),
        Step(
            r"\leq e^{-202} \, \lVert v_2 - v_1 \rVert + e^{-1450} \, \lVert v_3 - v_1 \rVert",
            r"The denominator is above 1. The sum is below $2 \cdot 10^{-87}$: softmax and argmax "
            "agree, because scores are not scaled.",
            worst=WorstCase("these numbers", lambda: _course_numbers(Generator())),
        ),
    ),
)

DERIVATIONS = (PRODUCT_MEAN, PRODUCT_VARIANCE, PRODUCTS_BY_HAND)
