"""Johns Hopkins, Homework 5: attention of low rank, masks, scale, padding, a block."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import LowRank, Mask, Softmax
from regard.exercises.exercise import Inputs, Mistake, exercise, integer, normal, orthonormal

_exercise = partial(exercise, "jhu-hw5")


def scores(q: Tensor, k: Tensor) -> Tensor:
    """Return QKᵀ/√h."""
    return q @ k.mT / math.sqrt(q.shape[-1])


def _singular_vectors(rng: torch.Generator) -> Inputs:
    n, rank = integer(rng, 14, 18), integer(rng, 2, 3)
    s = torch.randint(1, 300, (rank,), generator=rng).sort(descending=True).values / 100
    return {
        "u": orthonormal(rng, rank, n).T,
        "s": s.double().round(decimals=2),
        "w": orthonormal(rng, rank, n).T,
        "v": normal(rng, n, 3),
    }


@_exercise(
    "3.2",
    title="Attention from a singular value decomposition",
    problem=r"""The matrix of weights has rank $k$ and is given as $P = U \Sigma W^\top$, with
$U, W \in \mathbb{R}^{n \times k}$ and $\Sigma = \mathrm{diag}(s)$. Return $PV$ in
$O(nkh)$: no tensor with $n^2$ or more entries may be made. Use torch only, where entries
are counted.""",
    explanation=r"$U (\Sigma (W^\top V))$, from right to left: $2nkh + kh$ multiplications.",
    draw=_singular_vectors,
    max_entries=lambda u, **_: len(u) ** 2 - 1,
    mistakes=[
        Mistake(
            "You made an n × n matrix, so that the cost is quadratic in n: multiply from right"
            " to left.",
            lambda u, s, w, v: u * s @ w.T @ v,
        ),
        Mistake(
            "You left out the singular values: multiply WᵀV by them, row by row.",
            lambda u, s, w, v: u @ (w.T @ v),
        ),
    ],
)
def attention_from_svd(
    u: Float[Tensor, "n k"],
    s: Float[Tensor, " k"],
    w: Float[Tensor, "n k"],
    v: Float[Tensor, "n h"],
) -> Float[Tensor, "n h"]:
    """Return P V for P = U diag(s) Wᵀ, without an n × n matrix."""
    return LowRank(u * s, w.T, torch.ones(())) @ v


def _low_rank_scores(rng: torch.Generator) -> Inputs:
    n, h, rank = integer(rng, 6, 8), 4, 2
    return {"q": normal(rng, n, rank) @ normal(rng, rank, h), "k": normal(rng, n, h), "rank": rank}


def _singular(q: Tensor, k: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    left, _, right = torch.linalg.svd(scores(q, k))
    return left[:, :rank].T, right[:rank]


@_exercise(
    "3.3",
    title="Linear attention by two projections",
    problem=r"""Without softmax, $P = QK^\top / \sqrt h$ has rank $k \le h$. Find
$C, D \in \mathbb{R}^{k \times n}$ with $PV = Q (CK)^\top D V$ for every $V$. Many pairs
are right; yours is graded by the product $Q (CK)^\top D$.""",
    explanation=r"With $P = U \Sigma W^\top$: $C = W^\top / \sqrt h$ and $D = W^\top$, because"
    r" $P W W^\top = P$.",
    draw=_low_rank_scores,
    observe=lambda found, q, k, rank: q @ (found[0] @ k).T @ found[1],
    mistakes=[
        Mistake(
            "You used the left singular vectors, U: project keys and values by the right ones.",
            lambda q, k, rank: (
                _singular(q, k, rank)[0] / len(q.T) ** 0.5,
                _singular(q, k, rank)[0],
            ),
        ),
        Mistake(
            "You left out √h. P is QKᵀ divided by √h: divide C or D by it.",
            lambda q, k, rank: (_singular(q, k, rank)[1], _singular(q, k, rank)[1]),
        ),
    ],
)
def linear_projections(
    q: Float[Tensor, "n h"], k: Float[Tensor, "n h"], rank: int
) -> tuple[Float[Tensor, "rank n"], Float[Tensor, "rank n"]]:
    """Return C and D with Q Kᵀ/√h = Q (C K)ᵀ D.

    rank: of Q Kᵀ.
    """
    _, right = _singular(q, k, rank)
    return right / math.sqrt(q.shape[1]), right


def _with_hidden(rng: torch.Generator) -> Inputs:
    n = integer(rng, 4, 6)
    hidden = torch.zeros(n, dtype=torch.bool)
    hidden[torch.randperm(n, generator=rng)[: integer(rng, 1, 2)]] = True
    return {**{name: normal(rng, n, 3) for name in "qkv"}, "hidden": hidden}


@_exercise(
    "3.4",
    title="A mask",
    problem=r"""Compute scaled dot-product attention in which no query may look at the hidden
positions. The weights over the other positions sum to 1.""",
    explanation=r"Scores of $-\infty$ at hidden keys, before the softmax.",
    draw=_with_hidden,
    mistakes=[
        Mistake(
            "You masked after the softmax, so that the remaining weights don't sum to 1: mask"
            " the scores before it.",
            lambda q, k, v, hidden: scores(q, k).softmax(-1).masked_fill(hidden, 0) @ v,
        ),
        Mistake(
            "You gave hidden keys the score 0, and e⁰ = 1 is a weight: give them −∞.",
            lambda q, k, v, hidden: scores(q, k).masked_fill(hidden, 0).softmax(-1) @ v,
        ),
        Mistake(
            "You hid queries instead of keys: mask columns of the scores, not rows.",
            lambda q, k, v, hidden: scores(q, k).softmax(-1).masked_fill(hidden[:, None], 0) @ v,
        ),
    ],
)
def masked_attention(
    q: Float[Tensor, "n h"],
    k: Float[Tensor, "n h"],
    v: Float[Tensor, "n h"],
    hidden: Bool[Tensor, " n"],
) -> Float[Tensor, "n h"]:
    """Return softmax(QKᵀ/√h) V without the hidden positions.

    hidden: True where no query may look.
    """
    mask = Mask.positions(~hidden[None])
    out: Tensor = Softmax()(q[None, None], k[None, None], v[None, None], mask=mask)
    return out[0, 0]


def _moments(rng: torch.Generator) -> Inputs:
    return {"mu": normal(rng, integer(rng, 3, 6)), "sigma": integer(rng, 2, 9) / 4}


@_exercise(
    "3.5.1–3.5.2",
    title="Mean and variance of a product",
    problem=r"""Query and key are independent and drawn from $\mathcal N(\mu, \sigma^2 I)$ with
$\mu \in \mathbb{R}^h$. Return the mean and the variance of $q \cdot k$, in closed form.""",
    explanation=r"$\|\mu\|^2$ and $h \sigma^4 + 2 \sigma^2 \|\mu\|^2$: each entry adds $\mu_i^2$"
    r" and $(\mu_i^2 + \sigma^2)^2 - \mu_i^4$.",
    draw=_moments,
    mistakes=[
        Mistake(
            "You left the mean out of the variance. A mean that isn't zero adds to it: include a"
            " term with μ.",
            lambda mu, sigma: (float(mu @ mu), len(mu) * sigma**4),
        ),
        Mistake(
            "You wrote hσ² for hσ⁴. The variances of the two factors multiply: square σ².",
            lambda mu, sigma: (
                float(mu @ mu),
                len(mu) * sigma**2 + 2 * sigma**2 * float(mu @ mu),
            ),
        ),
        Mistake(
            "You took σ for the variance. It is the standard deviation: square it.",
            lambda mu, sigma: (float(mu @ mu), len(mu) * sigma**2 + 2 * sigma * float(mu @ mu)),
        ),
    ],
)
def product_moments(mu: Float[Tensor, " h"], sigma: float) -> tuple[float, float]:
    """Return mean and variance of q · k.

    sigma: standard deviation of each entry.
    """
    second = mu.square() + sigma**2
    return float(mu.square().sum()), float((second.square() - mu**4).sum())


def _padded(rng: torch.Generator) -> Inputs:
    n, h = 5, 3
    lengths = torch.tensor([n, integer(rng, 2, 4), integer(rng, 2, 4)])
    return {name: normal(rng, len(lengths), n, h) for name in "qkv"} | {"lengths": lengths}


def _real(lengths: Tensor, n: int) -> Tensor:
    return torch.arange(n) < lengths[:, None]


def _pads_averaged(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    hidden = ~_real(lengths, q.shape[1])[:, None]
    return (scores(q, k).masked_fill(hidden, -math.inf).softmax(-1) @ v).mean(1)


def _pads_attended(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    real = _real(lengths, q.shape[1])[..., None]
    return (real * (scores(q, k).softmax(-1) @ v)).sum(1) / lengths[:, None]


@_exercise(
    "1.15",
    title="A padded batch",
    problem=r"""A batch holds sequences of different lengths; positions from `lengths[b]` on are
padding. Compute scaled dot-product attention of each sequence and return the mean of its
outputs over its real positions. The result of a sequence must not depend on its padding.""",
    explanation="Mask the keys of the padding before the softmax, and leave its rows out of the"
    " mean.",
    draw=_padded,
    mistakes=[
        Mistake(
            "You let queries look at pads: hide the pads' keys before the softmax.", _pads_attended
        ),
        Mistake("You included pads in the mean: leave their rows out.", _pads_averaged),
        Mistake(
            "You let queries look at pads and included pads in the mean: hide their keys, and"
            " leave their rows out.",
            lambda q, k, v, lengths: (scores(q, k).softmax(-1) @ v).mean(1),
        ),
    ],
)
def mean_of_padded(
    q: Float[Tensor, "batch n h"],
    k: Float[Tensor, "batch n h"],
    v: Float[Tensor, "batch n h"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch h"]:
    """Return the mean attention output of each sequence's real positions."""
    out = Softmax()(q[:, None], k[:, None], v[:, None], mask=Mask.lengths(lengths))[:, 0]
    rows = [row[:length].mean(0) for row, length in zip(out, lengths.tolist(), strict=True)]
    return torch.stack(rows)


def _block_inputs(rng: torch.Generator) -> Inputs:
    n, d = 3, 4
    names = ("w_q", "w_k", "w_v", "w_o", "w_1", "w_2")
    return {"x": normal(rng, n, d), **{name: normal(rng, d, d) for name in names}, "heads": 2}


def _block(
    *,
    causal: bool = True,
    residual: bool = True,
    norm_first: bool = True,
    split: bool = True,
    merge: bool = True,
) -> Callable[..., Tensor]:
    """Return a program of a Transformer block, with one mistake or another."""

    def program(x: Tensor, heads: int, w_1: Tensor, w_2: Tensor, **w: Any) -> Tensor:
        n, d = x.shape

        def attention(y: Tensor) -> Tensor:
            projected = (y @ w[f"w_{name}"] for name in "qkv")
            q, k, v = (
                z.view(n, heads, -1).transpose(0, 1) if split else z.view(heads, n, -1)
                for z in projected
            )
            hidden = torch.ones(n, n, dtype=torch.bool).triu(1) & causal
            out = scores(q, k).masked_fill(hidden, -math.inf).softmax(-1) @ v
            out = out.transpose(0, 1) if merge else out
            mixed: Tensor = out.reshape(n, d) @ w["w_o"]
            return mixed

        for layer in (attention, lambda y: (y @ w_1).relu() @ w_2):
            kept = x if residual else torch.zeros_like(x)
            if norm_first:
                x = kept + layer(F.layer_norm(x, (d,)))
            else:
                x = F.layer_norm(kept + layer(x), (d,))
        return x

    return program


@_exercise(
    "4.2",
    title="A Transformer block",
    problem=r"""Write one block of a decoder with layer normalization before each layer:
$a = x + \mathrm{MHA}(\mathrm{LN}(x))$ and $y = a + \mathrm{relu}(\mathrm{LN}(a) W_1) W_2$.
MHA is causal self-attention: $XW_q$, $XW_k$, $XW_v$ are split into heads of consecutive
columns, scores are divided by the root of a head's width, and the heads' outputs side by
side are multiplied by $W_o$. LN is `torch.nn.functional.layer_norm` without weights.""",
    explanation="As written; `view(n, heads, -1).transpose(0, 1)` splits the columns.",
    draw=_block_inputs,
    points=2,
    mistakes=[
        Mistake(
            "You left out the residual connections: add the input of each layer to its output.",
            _block(residual=False),
        ),
        Mistake(
            "You let tokens look at later ones: hide the keys after each query.",
            _block(causal=False),
        ),
        Mistake(
            "You normalized after the residual sum: normalize the input of each layer instead.",
            _block(norm_first=False),
        ),
        Mistake(
            "You split the rows into heads. Heads are groups of columns: split the last axis,"
            " then transpose.",
            _block(split=False, merge=False),
            _block(split=False),
        ),
    ],
)
def transformer_block(
    x: Float[Tensor, "n d"],
    w_q: Float[Tensor, "d d"],
    w_k: Float[Tensor, "d d"],
    w_v: Float[Tensor, "d d"],
    w_o: Float[Tensor, "d d"],
    w_1: Float[Tensor, "d f"],
    w_2: Float[Tensor, "f d"],
    heads: int,
) -> Float[Tensor, "n d"]:
    """Return the output of a pre-norm decoder block."""
    normed = F.layer_norm(x, x.shape[-1:])
    q, k, v = (torch.stack((normed @ w).chunk(heads, -1))[None] for w in (w_q, w_k, w_v))
    out = Softmax()(q, k, v, mask=Mask.causal())[0]
    x = x + torch.cat(list(out), -1) @ w_o
    return x + (F.layer_norm(x, x.shape[-1:]) @ w_1).relu() @ w_2
