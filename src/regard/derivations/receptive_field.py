"""Receptive field of argmax attention: the number of inputs that a node depends on."""

from functools import partial
from itertools import product

import torch
from jaxtyping import Float64, Int64
from torch import Generator, Tensor

from regard.derivations.derivation import Derivation, Inputs, Step, WorstCase
from regard.derivations.draws import size, sizes
from regard.derivations.tex_scope import Letter

Fields = list[set[int]]


def _draw(generator: Generator) -> Inputs:
    heads, layers = size(generator, 1, 3), size(generator, 1, 3)
    nodes = (heads + 1) ** layers + size(generator, 0, 3)
    pointers: Int64[Tensor, "layers heads nodes"] = torch.randint(
        nodes, (layers, heads, nodes), generator=generator
    )
    return Inputs(pointers=pointers, **sizes(k=heads, n=layers, N=nodes))


def _planted(x: Inputs, base: int, first: int) -> Int64[Tensor, "layers heads nodes"]:
    """Head r of layer l points (first + r − 1) · base^(l − 1) nodes on, around the end."""
    layers, heads, nodes = x.pointers.shape
    layer = torch.arange(layers)[:, None, None]
    head = torch.arange(first, first + heads)[:, None]
    return (torch.arange(nodes) + head * base**layer) % nodes


def _fields(pointers: Int64[Tensor, "layers heads nodes"], *, residual: bool = True) -> Fields:
    """R_n(i) for each node i: unions of the fields of nodes that the heads of a layer point to."""
    fields: Fields = [{i} for i in range(pointers.shape[2])]
    for layer in pointers:
        below, fields = fields, []
        for i, targets in enumerate(layer.T.tolist()):
            sources = [i, *targets] if residual else targets
            fields.append(set[int]().union(*(below[j] for j in sources)))
    return fields


def _counts(fields: Fields) -> Float64[Tensor, " nodes"]:
    return torch.tensor([float(len(field)) for field in fields], dtype=torch.float64)


def _sum_of_parts(x: Inputs) -> Float64[Tensor, " nodes"]:
    """Σ_(r=0)^k |R_(n−1)(a_r(i))|, with a_0(i) = i."""
    below = _counts(_fields(x.pointers[:-1]))
    last = torch.cat([torch.arange(int(x.N))[None], x.pointers[-1]])
    return below[last].sum(0)


def _digits(x: Inputs, base: int) -> Float64[Tensor, " nodes"]:
    """Number of different nodes i + Σ_l d_l · base^(l−1), digits d_l from 0 to base − 1."""
    layers, _, nodes = x.pointers.shape
    steps = [
        sum(digit * base**place for place, digit in enumerate(digits))
        for digits in product(range(base), repeat=layers)
    ]
    reached = [{(i + step) % nodes for step in steps} for i in range(nodes)]
    return _counts(reached)


def _letters(x: Inputs) -> dict[str, Letter]:
    """Sizes of fields for random and for planted pointers, the nodes a_r(i), and A_lr."""
    nodes, identity = torch.arange(int(x.N)), torch.eye(int(x.N), dtype=torch.float64)
    pointers = torch.cat([nodes[None], x.pointers[-1]])
    counts = {
        "fn": _counts(_fields(x.pointers)),
        "fn-1": _counts(_fields(x.pointers[:-1])),
        "tilde fn": _counts(_fields(_planted(x, int(x.k) + 1, 1))),
        "hat fn": _counts(_fields(_planted(x, int(x.k), 0), residual=False)),
    }
    return {
        **{name: partial(_entry, count) for name, count in counts.items()},
        "a": lambda r, i: pointers[int(r), int(i) - 1] + 1.0,
        "A": identity[x.pointers],
        "I": identity,
        "e": torch.ones_like(identity[0]),
    }


def _entry(counts: Float64[Tensor, " nodes"], i: Tensor) -> Float64[Tensor, ""]:
    return counts[int(i) - 1]


def _disjoint() -> Inputs:
    """Two heads and two layers with planted pointers."""
    x = Inputs(pointers=torch.zeros(2, 2, 9), **sizes(k=2, n=2, N=9))
    return Inputs(x | {"pointers": _planted(x, 3, 1)})


_PLANTED = WorstCase("pointers as planted below, whose fields are disjoint", _disjoint)

RECEPTIVE_FIELD = Derivation(
    name="receptive-field",
    title="Receptive field of argmax attention",
    given=r"$N$ nodes a layer, $n$ layers, $k$ heads. With argmax, head $r$ of a layer passes on "
    r"the value of one node $a_r(i)$ to node $i$; with the residual connection, node $i$ also "
    r"keeps its own: $a_0(i) = i$. $R_n(i)$ is the set of inputs that arrive at node $i$ of layer "
    r"$n$, $R_0(i) = \{i\}$, and $f_n(i) = |R_n(i)|$ the number of its members. The course states "
    r"the number of paths as the size of the field; it is an upper bound, reached if no two paths "
    r"begin at the same input. All sets are counted.",
    draw=_draw,
    letters=_letters,
    indices=lambda x: dict.fromkeys("ij", range(1, int(x.N) + 1)),
    steps=(
        Step(
            r"\max_i f_n(i)",
            "The largest field, for random pointers.",
            library=lambda x: _counts(_fields(x.pointers)).max(),
        ),
        Step(
            r"\leq \max_i \sum_{r=0}^{k} f_{n-1}(a_r(i))",
            r"$R_n(i)$ is the union of the fields of node $i$ and of the $k$ nodes that its heads "
            "point to; a union has at most as many members as its parts together.",
            library=lambda x: _sum_of_parts(x).max(),
            worst=_PLANTED,
        ),
        Step(r"\leq (k + 1) \, \max_j f_{n-1}(j)", r"$k + 1$ parts.", worst=_PLANTED),
        Step(
            r"\leq (k + 1)^n",
            r"The same for each layer below; $f_0(j) = 1$. One head: $2^n$; two heads: $3^n$.",
            worst=_PLANTED,
        ),
        Step(
            r"\left( \prod_{l=1}^{n} \left( I + \sum_{r=1}^{k} A_{l,r} \right) \right) e",
            r"Paths that end in node $i$, for random pointers: $A_{l,r}$ has a 1 in row $i$, at "
            r"column $a_r(i)$ of layer $l$, and $e$ is the vector of ones. Counted by matrix "
            "products.",
        ),
        Step(
            r"= \left( \prod_{l=1}^{n} (k + 1) \right) e",
            r"Each row of a factor sums to $k + 1$: a path has $k + 1$ choices in every layer.",
        ),
        Step(r"= (k + 1)^n e", "So paths are as many as the bound, wherever heads point."),
        Step(
            r"\tilde f_n(i), \quad a_r(i) = i + r (k + 1)^{l-1} \; \mathrm{mod} \; N",
            r"$\tilde f_n$ for pointers that reach the bound, if $N \geq (k + 1)^n$: head $r$ of "
            "layer $l$ points $r (k + 1)^{l-1}$ nodes on.",
        ),
        Step(
            r"= \left| \left\{ i + \sum_{l=1}^{n} d_l (k + 1)^{l-1} \; \mathrm{mod} \; N : 0 \leq "
            r"d_l \leq k \right\} \right|",
            r"A path adds $d_l (k + 1)^{l-1}$ in layer $l$: $d_l = 0$ is the residual, $d_l = r$ "
            r"head $r$.",
            value=lambda x: _digits(x, int(x.k) + 1),
        ),
        Step(
            r"= (k + 1)^n",
            r"These are the digits of a number in base $k + 1$, and numbers have one expansion: no "
            "two paths begin at the same input.",
        ),
        Step(
            r"\hat f_n(i), \quad a_r(i) = i + (r - 1) k^{l-1} \; \mathrm{mod} \; N, "
            r"\quad 1 \leq r \leq k",
            r"$\hat f_n$ without the residual connection: only the $k$ heads pass on values.",
        ),
        Step(
            r"= \left| \left\{ i + \sum_{l=1}^{n} d_l k^{l-1} \; \mathrm{mod} \; N : 0 \leq d_l "
            r"\leq k - 1 \right\} \right|",
            r"$d_l = r - 1$ for head $r$.",
            value=lambda x: _digits(x, int(x.k)),
        ),
        Step(
            r"= k^n",
            r"Digits in base $k$. With one head and no residual, a node depends on one input only.",
        ),
    ),
)

DERIVATIONS = (RECEPTIVE_FIELD,)
