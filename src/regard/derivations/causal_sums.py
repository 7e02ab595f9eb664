"""Causal masking of kernel attention by running sums."""

import torch
from jaxtyping import Float64
from torch import Generator, Tensor

from regard.derivations.counting import Counter, operations
from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import normal, ones, size, sizes
from regard.derivations.tex_scope import FromZero, Letter


def _draw(generator: Generator) -> Inputs:
    n, e, m = (size(generator, 1, high) for high in (5, 4, 3))
    query: Float64[Tensor, "n e"] = normal(generator, n, e)
    key: Float64[Tensor, "n e"] = normal(generator, n, e)
    value: Float64[Tensor, "n m"] = normal(generator, n, m)
    return Inputs(Q=query, K=key, V=value, **sizes(N=n, E=e, M=m))


def _elu(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1, which is positive."""
    return torch.where(x > 0, x + 1, x.exp())


def recurrent_attention(c: Counter, x: Inputs) -> Float64[Tensor, "n m"]:
    """Return causal kernel attention token by token, and count operations after the features."""
    s, z, rows = x.K.new_zeros(x.K.shape[1], x.V.shape[1]), x.K.new_zeros(x.K.shape[1]), []
    for query, key, value in zip(_elu(x.Q), _elu(x.K), x.V, strict=True):
        s, z = s + c.product(key[:, None], value[None]), z + key
        top = c.product(query[None], s)
        rows.append(c.scaled(top, c.dot(query, z))[0])
    return torch.stack(rows)


def _causal_pairs(c: Counter, x: Inputs) -> Float64[Tensor, "n m"]:
    """Return causal kernel attention from all unmasked pairs, and count operations."""
    rows = []
    for i, query in enumerate(_elu(x.Q)):
        products = c.product(query[None], _elu(x.K[: i + 1]).T)
        top = c.product(products, x.V[: i + 1])
        rows.append(c.scaled(top, products.sum())[0])
    return torch.stack(rows)


def _inputs(n: Tensor, e: Tensor, m: Tensor) -> Inputs:
    """Return inputs of these sizes, filled with ones."""
    return Inputs(ones({"Q": (n, e), "K": (n, e), "V": (n, m)}))


def _letters(x: Inputs) -> dict[str, Letter]:
    """The mask, features, S_i from S_0 on and Z_i by definition, and counted costs."""
    keys = _elu(x.K)
    sums = torch.stack([keys[: i + 1].T @ x.V[: i + 1] for i in range(len(x.V))])
    return {
        "m": torch.ones(len(x.V), len(x.V)).double().tril(),
        "phi": _elu,
        "S": FromZero(torch.cat([torch.zeros_like(sums[:1]), sums])),
        "Z": keys.cumsum(0),
        "cost": lambda *shape: operations(lambda c: recurrent_attention(c, _inputs(*shape))),
        "costpairs": lambda *shape: operations(lambda c: _causal_pairs(c, _inputs(*shape))),
    }


CAUSAL_SUMS = Derivation(
    name="causal-sums",
    title="Causal masking of kernel attention by running sums",
    given=r"$N$ tokens, $\mathrm{sim}(q, k) = \phi(q)^\top \phi(k)$ with features $\phi$ of width "
    r"$E$, and values of width $M$. Features here are $\mathrm{elu}(x) + 1$, entry by entry, "
    r"which are positive. $S_i = \sum_{j=1}^{i} \phi(K_j) V_j^\top$ and $Z_i = \sum_{j=1}^{i} "
    r"\phi(K_j)$. Outputs are written as rows $V_i'^\top$; the course leaves out the transpose.",
    draw=_draw,
    letters=_letters,
    indices=lambda x: dict.fromkeys("ij", range(1, int(x.N) + 1)),
    defined={"sim(q,k)": r"\phi(q)^\top \phi(k)"},
    steps=(
        Step(
            r"V_i'^\top = \frac{\sum_{j=1}^{N} m_{ij} \, \mathrm{sim}(Q_i, K_j) \, V_j^\top}"
            r"{\sum_{j=1}^{N} m_{ij} \, \mathrm{sim}(Q_i, K_j)}",
            r"Attention with the causal mask: $m_{ij} = 1$ for $j \leq i$, and 0 for later tokens. "
            r"Evaluated from the $N \times N$ matrix.",
        ),
        Step(
            r"= \frac{\sum_{j=1}^{i} \phi(Q_i)^\top \phi(K_j) \, V_j^\top}{\sum_{j=1}^{i} "
            r"\phi(Q_i)^\top \phi(K_j)}",
            r"The mask ends both sums at $j = i$; insert the kernel.",
        ),
        Step(
            r"= \frac{\phi(Q_i)^\top \sum_{j=1}^{i} \phi(K_j) V_j^\top}{\phi(Q_i)^\top "
            r"\sum_{j=1}^{i} \phi(K_j)}",
            r"$\phi(Q_i)$ does not depend on $j$: matrix products are associative.",
        ),
        Step(r"= \frac{\phi(Q_i)^\top S_i}{\phi(Q_i)^\top Z_i}", "By definition."),
        Step(r"S_i", "The sums of each token, from their definition."),
        Step(
            r"= S_{i-1} + \phi(K_i) V_i^\top, \quad S_0 = 0",
            r"One more term than the token before. In the same way, $Z_i = Z_{i-1} + \phi(K_i)$.",
        ),
        Step(
            r"\mathrm{cost}(N, E, M)",
            "Token by token with running sums: multiplications and divisions, counted in explicit "
            "loops. Features are not counted.",
        ),
        Step(
            r"= \sum_{i=1}^{N} \left( E M + E M + E + M \right)",
            r"$\phi(K_i) V_i^\top$, $\phi(Q_i)^\top S_i$, $\phi(Q_i)^\top Z_i$ and the divisions: "
            r"the same for each token, however long the sequence.",
        ),
        Step(r"= N (2 E M + E + M)", r"$N$ equal terms."),
        Step(
            r"\leq 4 N E M",
            r"$E \leq E M$ and $M \leq E M$. So it is $O(N E M)$, linear in $N$.",
            library=lambda x: 4 * x.N * x.E * x.M,
            worst=WorstCase(r"$E = M = 1$", lambda: Inputs(sizes(N=4, E=1, M=1))),
        ),
        Step(
            r"\mathrm{cost}_{\mathrm{pairs}}(N, E, M)",
            "For comparison, from all pairs that the mask allows.",
        ),
        Step(r"= \sum_{i=1}^{N} \left( i E + i M + M \right)", r"Token $i$ attends to $i$ tokens."),
        Step(
            r"= \frac{1}{2} N (N + 1) (E + M) + N M",
            r"$1 + 2 + \ldots + N = \frac{1}{2} N (N + 1)$: quadratic in $N$.",
        ),
    ),
)

DERIVATIONS = (CAUSAL_SUMS,)
