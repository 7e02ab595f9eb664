"""Attention by products of features: the order of the products, and the speed-up."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.counting import Counter, operations
from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, size, sizes
from regard.derivations.tex_scope import Letter


def _draw(generator: Generator) -> Inputs:
    length, d, m = (size(generator, 1, high) for high in (5, 4, 3))
    tensors = {name: normal(generator, length, d) for name in "QKV"}
    directions: Float64[Tensor, "m d"] = normal(generator, m, d)
    return Inputs(**tensors, W=directions, **sizes(L=length, d=d, m=m))


def _features(c: Counter, x: Float64[Tensor, "n d"], w: Tensor) -> Float64[Tensor, "n m"]:
    """Return e^(w_r·x − ‖x‖²/2) for each row x and each r; the factor 1/√m cancels."""
    two = x.new_tensor(2.0)
    halves = torch.stack([c.divided(c.dot(row, row), two) for row in x])
    return (c.product(x, w.T) - halves[:, None]).exp()


def _letters(x: Inputs) -> dict[str, Letter]:
    """Return Q' and K', and the number of their operations F."""
    counter = Counter()
    made = {f"{name}'": _features(counter, x[name], x.W) for name in "QK"}
    return {**made, "F": x.L.new_tensor(counter.count)}


def _weights_first(c: Counter, x: Inputs) -> Float64[Tensor, "n d"]:
    """Return exp(QKᵀ/√d) V and count its operations."""
    scores = c.product(x.Q, x.K.T)
    return c.product(c.scaled(scores, x.d.sqrt()).exp(), x.V)


def _features_first(c: Counter, x: Inputs) -> Float64[Tensor, "n d"]:
    """Return Q'(K'ᵀV) and count its operations, including those of the features."""
    of_queries, of_keys = (_features(c, x[name], x.W) for name in "QK")
    return c.product(of_queries, c.product(of_keys.T, x.V))


FEATURE_PRODUCTS = Derivation(
    name="feature-products",
    title="The order of the products, and the speed-up",
    given=r"$Q, K, V \in \mathbb{R}^{L \times d}$, and $Q', K' \in \mathbb{R}^{L \times m}$: row "
    r"by row the positive features $e^{w_r \cdot x - \lVert x \rVert^2 / 2}$ of queries and keys, "
    r"which are divided by $d^{1/4}$ beforehand, for directions $w_1, \ldots, w_m$. Their mean "
    r"product is the exponential of the score. Multiplications and divisions are counted in "
    "explicit loops, before normalization.",
    draw=_draw,
    letters=_letters,
    steps=(
        Step(
            r"Q' K'^\top V",
            r"The estimate of $\exp(Q K^\top / \sqrt d)$, $L \times L$, times the values.",
        ),
        Step(
            r"= Q' \left( K'^\top V \right)",
            r"Matrix products are associative; the inner one is $m \times d$.",
        ),
        Step(
            r"\mathrm{cost}\left( \exp(Q K^\top / \sqrt d) \, V \right)",
            "With softmax, counted.",
            library=lambda x: operations(lambda c: _weights_first(c, x)),
        ),
        Step(
            r"= L^2 d + L^2 + L^2 d",
            r"$Q K^\top$, a division of each score, and the product with $V$.",
        ),
        Step(r"= L^2 (2 d + 1)", "Collect terms."),
        Step(
            r"F + \mathrm{cost}\left( Q' (K'^\top V) \right)",
            "With features, counted; $F$ of these operations make the features.",
            library=lambda x: operations(lambda c: _features_first(c, x)),
        ),
        Step(
            r"= 2 \left( L m d + L (d + 1) \right) + L m d + L m d",
            r"Products $w_r \cdot x$ and norms of queries and keys; $K'^\top V$; $Q'$ times it.",
        ),
        Step(r"= L \left( 4 m d + 2 d + 2 \right)", r"Collect terms: linear in $L$, $O(L m d)$."),
        Step(
            r"\frac{\mathrm{cost}\left( \exp(Q K^\top / \sqrt d) \, V \right)}"
            r"{F + \mathrm{cost}\left( Q' (K'^\top V) \right)}",
            "The speed-up.",
        ),
        Step(
            r"= \frac{L (2 d + 1)}{4 m d + 2 d + 2}",
            r"Divide by $L$. For large $m$ and $d$ it is about $\frac{L}{2 m}$.",
        ),
        Step(
            r"\geq \frac{L}{3 m}",
            r"$3 m (2 d + 1) \geq 4 m d + 2 d + 2$, because $m (2 d + 3) \geq 2 d + 2$.",
            worst=WorstCase(r"$m = 1$ and a large $d$", lambda: Inputs(sizes(L=9, d=100, m=1))),
        ),
    ),
)


DERIVATIONS = (FEATURE_PRODUCTS,)
