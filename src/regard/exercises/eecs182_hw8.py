"""EECS 182, Homework 8: maps, shifted positions, masks, beam search, kernel attention."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Mask, Softmax
from regard.attention.feature_maps import Fourier
from regard.decoding import search_ids
from regard.exercises.exercise import Inputs, Mistake, exercise, integer, normal
from regard.positions import shift_matrix

_exercise = partial(exercise, "eecs182-hw8")
_CPU = torch.device("cpu")


def _queries_and_keys(rng: torch.Generator) -> Inputs:
    n, h = integer(rng, 3, 5), integer(rng, 3, 5)
    return {"q": normal(rng, n, h), "k": normal(rng, n, h)}


@_exercise(
    "1.a",
    title="A map of attention weights",
    problem=r"""Return the weights of scaled dot-product attention: row $i$ holds how much query $i$
looks at each key.""",
    explanation=r"$\mathrm{softmax}(QK^\top / \sqrt h)$ over keys, the last axis.",
    draw=_queries_and_keys,
    mistakes=[
        Mistake(
            "You took the softmax over queries: take it over keys, the last axis.",
            lambda q, k: (q @ k.T / math.sqrt(q.shape[1])).softmax(0),
        ),
        Mistake(
            "You didn't divide the scores: divide them by √h.", lambda q, k: (q @ k.T).softmax(-1)
        ),
        Mistake(
            "You divided the scores by h: divide them by its root.",
            lambda q, k: (q @ k.T / q.shape[1]).softmax(-1),
        ),
    ],
)
def attention_map(q: Float[Tensor, "n h"], k: Float[Tensor, "n h"]) -> Float[Tensor, "n n"]:
    """Return the weights: query i (row), key j (column)."""
    weights: Tensor = Softmax().weights(q[None, None], k[None, None])
    return weights[0, 0]


def _width_and_steps(rng: torch.Generator) -> Inputs:
    return {"d": 2 * integer(rng, 2, 4), "s": integer(rng, 2, 9)}


def _shift_from_one(d: int, s: int) -> Tensor:
    angles = s * 10000.0 ** (-2 * torch.arange(1, d // 2 + 1).double() / d)
    blocks = [[[a.cos(), a.sin()], [-a.sin(), a.cos()]] for a in angles]
    matrix: Tensor = torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))
    return matrix


@_exercise(
    "1.c",
    title="The matrix that shifts positions",
    problem=r"""Position $t$ has the vector $p_t$ with $\sin(\omega_k t)$ and $\cos(\omega_k t)$ as
entries $2k$ and $2k + 1$, $\omega_k = 10000^{-2k/d}$ for $k = 0, \dots, d/2 - 1$. Return
the matrix $M^s$ with $p_{t+s} = M^s p_t$ for every $t$.""",
    explanation=r"Blocks $\begin{pmatrix} \cos s\omega_k & \sin s\omega_k \\ -\sin s\omega_k &"
    r" \cos s\omega_k \end{pmatrix}$ on the diagonal.",
    draw=_width_and_steps,
    mistakes=[
        Mistake(
            "You returned the transpose, which shifts backward: swap rows and columns.",
            lambda d, s: shift_matrix(d, s).T,
        ),
        Mistake(
            "You began the frequencies at k = 1: begin at k = 0, with ω₀ = 1.", _shift_from_one
        ),
        Mistake(
            "You shifted by one position only: return the power Mˢ.", lambda d, s: shift_matrix(d)
        ),
    ],
)
def shift_by(d: int, s: int) -> Float[Tensor, "d d"]:
    """Return Mˢ.

    d: width, even. s: positions to shift by.
    """
    return shift_matrix(d, s)


def _two_lengths(rng: torch.Generator) -> Inputs:
    batch, n, m = 3, 5, 4

    def lengths(most: int) -> Tensor:
        return torch.tensor([most, *(integer(rng, 1, most - 1) for _ in range(batch - 1))])

    return {"sources": lengths(n), "targets": lengths(m), "n": n, "m": m}


def _masks(
    *, diagonal: bool = True, keys: bool = True, causal: bool = True
) -> Callable[..., tuple[Tensor, Tensor]]:
    def program(sources: Tensor, targets: Tensor, n: int, m: int) -> tuple[Tensor, Tensor]:
        i, j = torch.arange(m)[:, None], torch.arange(m)
        past = (j <= i if diagonal else j < i) | (not causal)
        real = (j if keys else i) < targets[:, None, None]
        source_keys = torch.arange(n) < sources[:, None, None]
        cross = source_keys if keys else i < targets[:, None, None]
        return (past & real).expand(-1, m, m), cross.expand(-1, m, n)

    return program


@_exercise(
    "1.e",
    title="The masks of an encoder–decoder",
    problem=r"""A batch of sources is padded to $n$ tokens, its targets to $m$. Return two masks,
True where a query (row) may look at a key (column): the decoder's causal self-attention, in
which no query may look at padding, and cross-attention, in which every target position
may look at the real source tokens. Rows of padding follow the same rule as the others.""",
    explanation=r"`(j <= i) & (j < targets[b])`, and `j < sources[b]` for every row.",
    draw=_two_lengths,
    mistakes=[
        Mistake("You hid the diagonal: let each token look at itself.", _masks(diagonal=False)),
        Mistake(
            "You hid the queries of padding: hide the keys of padding instead.",
            _masks(keys=False),
        ),
        Mistake(
            "You let the decoder look at later tokens: make its mask causal.", _masks(causal=False)
        ),
    ],
)
def attention_masks(
    sources: Int[Tensor, " batch"], targets: Int[Tensor, " batch"], n: int, m: int
) -> tuple[Bool[Tensor, "batch m m"], Bool[Tensor, "batch m n"]]:
    """Return the masks of decoder self-attention and of cross-attention.

    sources, targets: number of real tokens of each sequence.
    """
    decoder = (Mask.causal() & Mask.lengths(targets)).to_dense(m, m, _CPU)[:, 0]
    cross = Mask.lengths(sources).to_dense(m, n, _CPU)[:, 0]
    return decoder.expand(-1, m, m), cross.expand(-1, m, n)


@dataclass
class _Chain:
    """A language model whose next token depends on the last one and on the number of steps."""

    log_p: Tensor
    step: int = 0

    def init_state(self, batch: int, capacity: int) -> "_Chain":
        return self

    def extend(
        self, input_ids: Tensor, states: "_Chain", attention_mask: Tensor | None = None
    ) -> tuple[Tensor, "_Chain"]:
        return self.log_p[states.step, input_ids[:, -1]], _Chain(self.log_p, states.step + 1)

    def reorder(self, rows: Tensor) -> "_Chain":
        return self


def _chain(rng: torch.Generator) -> Inputs:
    tokens, max_tokens = 4, integer(rng, 4, 5)
    # Not rounded: no two continuations are equally probable.
    scores = torch.randn(max_tokens, tokens, tokens, generator=rng, dtype=torch.float64)
    return {
        "log_p": scores.log_softmax(-1),
        "start": 0,
        "stop": 1,
        "beams": 2,
        "max_tokens": max_tokens,
        "penalty": integer(rng, 8, 12) / 4,
    }


def _searched(
    *, finish: bool = True, by_length: bool = True, width: int | None = None, cut: bool = True
) -> Callable[..., list[int]]:
    """Return a program of beam search, with one mistake or another."""

    def program(
        log_p: Tensor, start: int, stop: int, beams: int, max_tokens: int, penalty: float
    ) -> list[int]:
        kept = width or beams
        live, finished = [([start], 0.0)], list[tuple[list[int], float]]()
        for step in range(1, max_tokens + 1):
            grown = [
                ([*ids, token], score + float(log_p[step - 1, ids[-1], token]))
                for ids, score in live
                for token in range(log_p.shape[-1])
            ]
            grown.sort(key=lambda beam: -beam[1])
            last = step == max_tokens
            ended = [b for b in grown[:kept] if last or (finish and b[0][-1] == stop)]
            finished += ended
            live = [b for b in grown if not finish or b[0][-1] != stop][:kept]
        exponent = penalty if by_length else 0.0
        best = max(finished, key=lambda beam: beam[1] / (len(beam[0]) - 1) ** exponent)[0][1:]
        if cut and stop in best:
            return best[: best.index(stop)]
        return [token for token in best if token != stop]

    return program


@_exercise(
    "1.f",
    title="Beam search",
    problem=r"""A language model gives the log-probability of the next token from the last one, at
each step: `log_p[step, last, next]`, with steps from 0. At every step, rank all
continuations of the live beams by one token by their log-probability. Those of the
`beams` best that end in the stop token are finished; of the continuations that don't
end in it, the `beams` best live on. After `max_tokens` tokens, the `beams` best are
finished as they are. Return the finished
continuation with the largest $\log P / \text{length}^{\text{penalty}}$, where the length
counts the stop token. Leave start and stop token out of the result.""",
    explanation="Finished beams leave the search; scores are compared by length only at the end.",
    draw=_chain,
    points=2,
    mistakes=[
        Mistake(
            "You extended finished beams: take a beam out of the search after its stop token.",
            _searched(finish=False),
            _searched(finish=False, cut=False),
        ),
        Mistake(
            "You left out the length penalty, and log-probabilities favor short results: divide"
            " by the length to the power `penalty`.",
            _searched(by_length=False),
        ),
        Mistake(
            "You kept one beam, which is greedy search: keep as many as `beams`.",
            _searched(width=1),
        ),
    ],
)
def best_continuation(
    log_p: Float[Tensor, "steps tokens tokens"],
    start: int,
    stop: int,
    beams: int,
    max_tokens: int,
    penalty: float,
) -> list[int]:
    """Return the tokens of the best finished continuation, without start and stop.

    log_p: log-probability of the next token (column) after the last (row), at each step.
    """
    ((best,),) = search_ids(
        _Chain(log_p),
        [[start]],
        beams=beams,
        max_new_tokens=max_tokens,
        stop_ids=(stop,),
        length_penalty=penalty,
    )
    return best.ids


def _gaussian(rng: torch.Generator) -> Inputs:
    n, d = 3, integer(rng, 3, 6)
    q, k = normal(rng, n, d), normal(rng, n, d)
    gaussian = (-torch.cdist(q, k).square() / (2 * math.sqrt(d))).exp()
    return {
        "gaussian": gaussian,
        "q_norms": q.norm(dim=-1),
        "k_norms": k.norm(dim=-1),
        "d": d,
    }


def _similarity(
    gaussian: Tensor,
    q_norms: Tensor,
    k_norms: Tensor,
    d: int,
    *,
    sign: int = 1,
    keys: bool = True,
    power: float = 0.5,
) -> Tensor:
    squares = q_norms.square()[:, None] + (k_norms.square() if keys else 0.0)
    similarity: Tensor = gaussian * (sign * squares / (2 * d**power)).exp()
    return similarity


@_exercise(
    "3.a.i",
    title="Softmax similarity from a Gaussian kernel",
    problem=r"""Given the Gaussian kernel $e^{-\|q_i - k_j\|^2 / 2\sigma^2}$ with
$\sigma^2 = \sqrt d$ of all pairs, and the norms of queries and keys, return the softmax
similarities $e^{q_i \cdot k_j / \sqrt d}$.""",
    explanation=r"$q \cdot k = \frac{1}{2} (\|q\|^2 + \|k\|^2 - \|q - k\|^2)$: multiply by"
    r" $e^{\|q\|^2 / 2\sigma^2} e^{\|k\|^2 / 2\sigma^2}$.",
    draw=_gaussian,
    mistakes=[
        Mistake(
            "You left out the factor of the keys: multiply by both, that of the queries and that"
            " of the keys.",
            lambda **x: _similarity(**x, keys=False),
        ),
        Mistake(
            "You reversed the sign of the exponents: make them positive.",
            lambda **x: _similarity(**x, sign=-1),
        ),
        Mistake("You used σ² = d: use √d.", lambda **x: _similarity(**x, power=1.0)),
    ],
)
def softmax_similarity(
    gaussian: Float[Tensor, "n m"],
    q_norms: Float[Tensor, " n"],
    k_norms: Float[Tensor, " m"],
    d: int,
) -> Float[Tensor, "n m"]:
    """Return e^(q_i · k_j / √d) for all pairs.

    d: width of queries and keys.
    """
    half_squares = q_norms[:, None].square() / 2 + k_norms.square() / 2
    products = half_squares + math.sqrt(d) * gaussian.log()
    return (products / math.sqrt(d)).exp()


def _directions(rng: torch.Generator) -> Inputs:
    d = integer(rng, 3, 4)
    return {
        "x": normal(rng, 4, d),
        "g": normal(rng, integer(rng, 4, 6), d),
        "sigma": integer(rng, 5, 12) / 4,
    }


def _fourier(x: Tensor, g: Tensor, sigma: float, *, inverse: bool = True, m: int = 1) -> Tensor:
    angles = x @ (g / sigma if inverse else g * sigma).T
    return torch.cat([angles.sin(), angles.cos()], -1) / math.sqrt(m * len(g))


@_exercise(
    "3.a.ii",
    title="Random Fourier features",
    problem=r"""Rows $g_i$ are drawn from $\mathcal N(0, I)$. Make directions $w_i$ of them and
return features $\phi(x)$, a sine and a cosine for each direction, with
$\mathrm{E}[\phi(q) \cdot \phi(k)] = e^{-\|q - k\|^2 / 2\sigma^2}$. You are graded by the
products $\phi(x_i) \cdot \phi(x_j)$, so the order of the features is free.""",
    explanation=r"$w_i = g_i / \sigma$, so that $w \sim \mathcal N(0, I / \sigma^2)$, and the"
    r" factor $1 / \sqrt m$ for $m$ directions.",
    draw=_directions,
    observe=lambda found, **_: found @ found.T,
    mistakes=[
        Mistake(
            "You made directions with variance σ², but it has to be 1/σ²: divide by σ.",
            lambda x, g, sigma: _fourier(x, g, sigma, inverse=False),
        ),
        Mistake(
            "You used the factor 1/√(2m). Sine and cosine of one direction add up to 1: use 1/√m.",
            lambda x, g, sigma: _fourier(x, g, sigma, m=2),
        ),
        Mistake(
            "You left out the factor of the mean over m directions: multiply by 1/√m.",
            lambda x, g, sigma: _fourier(x, g, sigma) * math.sqrt(len(g)),
        ),
    ],
)
def fourier_features(
    x: Float[Tensor, "n d"], g: Float[Tensor, "m d"], sigma: float
) -> Float[Tensor, "n features"]:
    """Return φ(x) for each row of x: two features a direction.

    g: draws from N(0, I), one a row.
    """
    features = Fourier(d=x.shape[1], features=len(g), sigma=sigma).double()
    features.directions.copy_(g)
    values: Tensor = features(x)[0]
    return values


def _features_and_values(rng: torch.Generator) -> Inputs:
    n, m = integer(rng, 12, 14), 3
    positive = {name: normal(rng, n, m).abs() + 0.1 for name in ("phi_q", "phi_k")}
    return {**positive, "v": normal(rng, n, 2)}


def _sums(*, z: str = "now", late: bool = False) -> Callable[..., Tensor]:
    def program(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
        s_i, z_i = torch.zeros(phi_k.shape[1], v.shape[1]).double(), phi_k[0] * 0
        rows = []
        for query, key, value in zip(phi_q, phi_k, v, strict=True):
            after = s_i + torch.outer(key, value), z_i + key
            s_i, z_i = (s_i, z_i) if late else after
            normalizer = phi_k.sum(0) if z == "last" else z_i
            rows.append(query @ s_i / (query @ normalizer))
            s_i, z_i = after
        return torch.stack(rows)

    return program


def _masked_matrix(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    weights = (phi_q @ phi_k.T).tril()
    return weights / weights.sum(-1, keepdim=True) @ v


@_exercise(
    "3.b",
    title="Causal kernel attention",
    problem=r"""With features $\phi$ of queries and keys, causal kernel attention is
$c_i = \phi(q_i)^\top S_i / \phi(q_i)^\top Z_i$, where
$S_i = \sum_{j \le i} \phi(k_j) v_j^\top$ and $Z_i = \sum_{j \le i} \phi(k_j)$. Return all
$c_i$ in linear time: no tensor with $n^2$ or more entries may be made. Use torch only,
where entries are counted.""",
    explanation="Running sums: add the token to S and Z, then read both.",
    draw=_features_and_values,
    max_entries=lambda phi_q, **_: len(phi_q) ** 2 - 1,
    points=2,
    mistakes=[
        Mistake("You used the last Z for all tokens: end Z_i at j = i.", _sums(z="last")),
        Mistake(
            "You read S and Z before updating them, but token i attends to itself: update first.",
            _sums(late=True),
        ),
        Mistake(
            "You made an n × n matrix, so that the cost is quadratic in n: keep running sums.",
            _masked_matrix,
        ),
    ],
)
def causal_kernel_attention(
    phi_q: Float[Tensor, "n m"], phi_k: Float[Tensor, "n m"], v: Float[Tensor, "n e"]
) -> Float[Tensor, "n e"]:
    """Return c_i in row i, without an n × n matrix.

    phi_q, phi_k: features of queries and keys, positive.
    """
    weights = (phi_q @ phi_k.T).tril()
    return weights @ v / weights.sum(-1, keepdim=True)
