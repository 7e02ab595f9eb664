"""EECS 182, Transformers and Pretraining: positions, receptive field, costs."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.exercises.exercise import Inputs, Mistake, exercise, integer, normal
from regard.operations import OperationCounter
from regard.positions import RelativeBias

_exercise = partial(exercise, "eecs182-transformers")


def _words_and_positions(rng: torch.Generator) -> Inputs:
    n, d = integer(rng, 3, 4), integer(rng, 3, 4)
    return {"x": normal(rng, n, d), "p": normal(rng, n, d)}


@_exercise(
    "b",
    title="What adding has and concatenating doesn't",
    problem=r"""With $q = k = z$, scores are the products $z_i \cdot z_j$. Position vectors $p_i$
can be added, $z_i = x_i + p_i$, or concatenated, $z_i = [x_i, p_i]$. Return the difference
of the two matrices of scores: added minus concatenated.""",
    explanation=r"$X P^\top + P X^\top$: the cross terms.",
    draw=_words_and_positions,
    mistakes=[
        Mistake(
            "You included one of the two cross terms: add the other one.",
            lambda x, p: x @ p.T,
            lambda x, p: p @ x.T,
        ),
        Mistake(
            "You included the products of positions. They are in both matrices and cancel: leave"
            " them out.",
            lambda x, p: x @ p.T + p @ x.T + p @ p.T,
        ),
        Mistake(
            "You reversed the sign: subtract the concatenated scores from the added ones.",
            lambda x, p: -(x @ p.T + p @ x.T),
        ),
    ],
)
def cross_terms(x: Float[Tensor, "n d"], p: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return the scores of x + p minus those of [x, p].

    x: word embeddings. p: position embeddings.
    """
    added, concatenated = x + p, torch.cat([x, p], -1)
    return added @ added.T - concatenated @ concatenated.T


def _table(rng: torch.Generator) -> Inputs:
    length = integer(rng, 4, 6)
    heads = integer(rng, 2, 3)
    return {"table": normal(rng, heads, 2 * length - 1), "n": integer(rng, 3, length - 1)}


def _looked_up(index: Callable[[Tensor, Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
    def program(table: Tensor, n: int) -> Tensor:
        i, j = torch.arange(n)[:, None], torch.arange(n)
        places = index(i, j, (table.shape[1] + 1) // 2) % table.shape[1]
        return table[:, places]

    return program


@_exercise(
    "c.i",
    title="A table of relative biases",
    problem=r"""Each head has a learned bias $\pi_{i-j}$ for every difference of query position $i$
and key position $j$, for sequences of up to $T$ tokens. Row $m$ of the table holds
$\pi_{-(T-1)}, \dots, \pi_0, \dots, \pi_{T-1}$ of head $m$. Return the biases of a
sequence of $n \le T$ tokens as a matrix a head.""",
    explanation=r"`table[:, i - j + T - 1]`.",
    draw=_table,
    mistakes=[
        Mistake(
            "You looked up j − i, but the table is in the order of i − j: swap the two.",
            _looked_up(lambda i, j, length: j - i + length - 1),
        ),
        Mistake(
            "You are off by one in the table: look up π₀ at index T − 1.",
            _looked_up(lambda i, j, length: i - j + length),
            _looked_up(lambda i, j, length: i - j + length - 2),
        ),
    ],
)
def relative_bias(table: Float[Tensor, "heads entries"], n: int) -> Float[Tensor, "heads n n"]:
    """Return the bias of each head, query i (row) and key j (column).

    table: π from −(T − 1) to T − 1, a row for each head.
    """
    heads, entries = table.shape
    bias = RelativeBias(heads=heads, length=(entries + 1) // 2).double()
    with torch.no_grad():
        bias.values.copy_(table.flip(1))  # the library counts j − i
        return bias.dense(torch.arange(n), torch.arange(n))


def _sizes(rng: torch.Generator) -> Inputs:
    return {"length": integer(rng, 5, 200), "heads": integer(rng, 2, 16)}


@_exercise(
    "c.ii",
    title="Parameters of relative biases",
    problem=r"""How many parameters do biases $\pi_{i-j}$ add to an attention layer of $m$ heads, if
sequences have at most $T$ tokens and every head has its own?""",
    explanation=r"$(2(T - 1) + 1) \, m$.",
    draw=_sizes,
    mistakes=[
        Mistake(
            "You counted 2T differences, one too many: count those from −(T − 1) to T − 1.",
            lambda length, heads: 2 * length * heads,
        ),
        Mistake(
            "You left out the heads. Every head has its own biases: multiply by their number.",
            lambda length, heads: 2 * length - 1,
        ),
        Mistake(
            "You counted differences of one sign only: count the negative ones too.",
            lambda length, heads: length * heads,
        ),
        Mistake(
            "You counted every pair of positions. Pairs with the same difference share a bias:"
            " count differences.",
            lambda length, heads: length**2 * heads,
        ),
    ],
)
def bias_parameters(length: int, heads: int) -> int:
    """Return the number of parameters.

    length: T. heads: m.
    """
    layer = RelativeBias(heads=heads, length=length)
    return sum(parameter.numel() for parameter in layer.parameters())


def _pointers(rng: torch.Generator) -> Inputs:
    layers, heads, n = 2, integer(rng, 1, 2), integer(rng, 8, 10)
    return {"pointers": torch.randint(n, (layers, heads, n), generator=rng)}


def _fields(pointers: Tensor, *, residual: bool = True) -> Tensor:
    _, heads, n = pointers.shape
    fields = [{i} for i in range(n)]
    for layer in pointers.tolist():
        kept = fields if residual else [set[int]() for _ in range(n)]
        fields = [kept[i].union(*(fields[layer[h][i]] for h in range(heads))) for i in range(n)]
    return torch.tensor([len(field) for field in fields])


@_exercise(
    "e",
    title="The receptive field of argmax attention",
    problem=r"""In each layer, a head copies the state of one node to another: head $h$ of layer $l$
points node $i$ to node `pointers[l, h, i]`. The layer adds to each node's state what its
heads copy (a residual connection). Return for each node the number of different inputs
that its state depends on after all layers.""",
    explanation="Union of the node's own field and those pointed to, layer by layer; at most"
    r" $(k + 1)^n$, fewer where paths meet.",
    draw=_pointers,
    points=2,
    mistakes=[
        Mistake(
            "You left out the residual connection. A node keeps what it held: include its own"
            " field.",
            lambda pointers: _fields(pointers, residual=False),
        ),
        Mistake(
            "You returned kⁿ, which counts paths without the residual connection: count the"
            " inputs that a node reaches.",
            lambda pointers: torch.full(pointers.shape[2:], pointers.shape[1] ** pointers.shape[0]),
        ),
        Mistake(
            "You returned (k + 1)ⁿ, which counts paths. Where paths meet there are fewer inputs:"
            " count different inputs.",
            lambda pointers: torch.full(
                pointers.shape[2:], (pointers.shape[1] + 1) ** pointers.shape[0]
            ),
        ),
    ],
)
def receptive_fields(pointers: Int[Tensor, "layers heads n"]) -> Int[Tensor, " n"]:
    """Return the number of inputs that each node's last state depends on."""
    n = pointers.shape[-1]
    reached = torch.eye(n)
    for layer in pointers:
        reached = reached + reached[layer].sum(0)
    return (reached > 0).sum(-1)


def _lengths(rng: torch.Generator) -> Inputs:
    return {"m": integer(rng, 3, 40), "n": integer(rng, 3, 40), "k": integer(rng, 2, 16)}


def _multiplications(queries: int, keys: int, k: int) -> int:
    """Return the multiplications of QKᵀ and of the weights times V, counted while they run."""
    q, kv = torch.zeros(queries, k), torch.zeros(keys, k)
    with OperationCounter() as counter:
        _ = q @ kv.T @ kv
    return counter.total // 2


@_exercise(
    "f",
    title="Costs of the three attentions",
    problem=r"""An encoder–decoder reads $M$ tokens and writes $N$, with width $k$. Count the
multiplications in $QK^\top$ and in the product of the weights with $V$, for encoder
self-attention, cross-attention and decoder self-attention (without a mask).""",
    explanation=r"$2M^2k$, $2MNk$ and $2N^2k$.",
    draw=_lengths,
    mistakes=[
        Mistake(
            "You counted only QKᵀ: add the product with V, which takes as many.",
            lambda m, n, k: (m * m * k, m * n * k, n * n * k),
        ),
        Mistake(
            "You miscounted the cross-attention: count N queries and M keys.",
            lambda m, n, k: (2 * m * m * k, 2 * m * m * k, 2 * n * n * k),
            lambda m, n, k: (2 * m * m * k, 2 * n * n * k, 2 * n * n * k),
        ),
        Mistake(
            "You exchanged encoder and decoder: give the encoder M tokens and the decoder N.",
            lambda m, n, k: (2 * n * n * k, 2 * m * n * k, 2 * m * m * k),
        ),
    ],
)
def attention_costs(m: int, n: int, k: int) -> tuple[int, int, int]:
    """Return the multiplications of encoder, cross- and decoder attention.

    m: source tokens. n: target tokens. k: width.
    """
    return _multiplications(m, m, k), _multiplications(n, m, k), _multiplications(n, n, k)
