"""Practical 4: designed queries and heads, span corruption, Linformer, BigBird, random features."""

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Bool, Float
from scipy.special import ndtr
from torch import Tensor

from regard.attention import Linformer, Mask, Softmax
from regard.attention.feature_maps import FavorPositive
from regard.exercises.exercise import Inputs, Mistake, exercise, integer, normal, orthonormal

_exercise = partial(exercise, "practical-4")
_REST = 1e-6
"""Largest total weight of all other keys."""


def _keys_and_share(rng: torch.Generator) -> Inputs:
    n, d = integer(rng, 4, 6), 6
    a, b = torch.randperm(n, generator=rng)[:2].tolist()
    return {"keys": orthonormal(rng, n, d), "a": a, "b": b, "share": integer(rng, 6, 9) / 10}


def _weights_of_query(q: Tensor, keys: Tensor, a: int, b: int, **_: float) -> tuple[Tensor, bool]:
    """Return the weights of a and b over their sum, and whether the others are negligible."""
    weights = Softmax(scaled=False).weights(q[None, None, None], keys[None, None])[0, 0, 0]
    pair = weights[[a, b]]
    return pair / pair.sum(), float(1 - pair.sum()) <= _REST


def _query(
    *, t: float = 30.0, log_ratio: bool = True
) -> Callable[[Tensor, int, int, float], Tensor]:
    def program(keys: Tensor, a: int, b: int, share: float) -> Tensor:
        extra = math.log(share / (1 - share)) if log_ratio else 0.0
        return t * (keys[a] + keys[b]) + extra * keys[a]

    return program


@_exercise(
    "2.b",
    title="A query for given weights",
    problem=r"""The keys $k_1, \dots, k_n$ are orthonormal. Find a query whose softmax weights (no
division by $\sqrt h$) are `share` for $k_a$ and 1 − `share` for $k_b$; all other keys
together may get $10^{-6}$ at most.""",
    explanation=r"$q = t (k_a + k_b) + \ln \frac{p}{1 - p} \, k_a$ with a large $t$, e.g. 30.",
    draw=_keys_and_share,
    observe=_weights_of_query,
    tolerance=1e-5,
    mistakes=[
        Mistake(
            "You used too short a query, so that the other keys keep too much weight: multiply"
            " it by a large t.",
            _query(t=1.0),
            _query(t=1.0, log_ratio=False),
            _query(t=0.0),
        ),
        Mistake(
            "You gave the two keys equal weights. Their ratio is e to the difference of the"
            " scores: make the scores differ.",
            _query(log_ratio=False),
        ),
    ],
)
def weighted_query(keys: Float[Tensor, "n d"], a: int, b: int, share: float) -> Float[Tensor, " d"]:
    """Return a query that gives keys[a] the weight `share` and keys[b] the rest.

    keys: orthonormal rows.
    """
    wanted = torch.zeros(len(keys), dtype=keys.dtype)
    wanted[a], wanted[b] = 30 + math.log(share), 30 + math.log(1 - share)
    found: Tensor = torch.linalg.lstsq(keys, wanted[:, None], driver="gelsd").solution
    return found[:, 0]


def _phi(x: float) -> float:
    return float(ndtr(x))


def _noise(rng: torch.Generator) -> Inputs:
    return {
        "n": integer(rng, 4, 30),
        "t": float(integer(rng, 4, 12)),
        "variance": integer(rng, 2, 8) / 10,
    }


@_exercise(
    "2.d.2",
    title="How often a head finds its key",
    problem=r"""Keys are orthonormal, except that $k_a = \gamma \mu_a$ with
$\gamma \sim \mathcal N(1, \text{variance})$; $n$ keys in all. The query is
$q = t \mu_a$. Return the probability that the softmax weight of $k_a$ is above ½.""",
    explanation=r"$\alpha_a > \frac{1}{2}$ iff $e^{t \gamma} > n - 1$, so"
    r" $\Phi\left((1 - \ln(n - 1) / t) / \sqrt{\text{variance}}\right)$.",
    draw=_noise,
    mistakes=[
        Mistake(
            "You used the variance as the standard deviation: take its root.",
            lambda n, t, variance: _phi((1 - math.log(n - 1) / t) / variance),
        ),
        Mistake(
            "You forgot the other n − 1 keys. Each has the score 0, and e⁰ = 1: count their"
            " weights.",
            lambda n, t, variance: _phi(1 / math.sqrt(variance)),
        ),
        Mistake(
            "You counted n other keys: there are n − 1.",
            lambda n, t, variance: _phi((1 - math.log(n) / t) / math.sqrt(variance)),
        ),
    ],
)
def found_probability(n: int, t: float, variance: float) -> float:
    """Return P(α_a > ½).

    n: keys. t: length of the query. variance: of γ.
    """
    return _phi((1 - math.log(n - 1) / t) / math.sqrt(variance))


def _vectors(rng: torch.Generator) -> Inputs:
    beta = float(integer(rng, 8, 12))
    return {"u": beta * orthonormal(rng, 4, integer(rng, 4, 5)), "beta": beta}


def _head_outputs(found: list[Tensor], u: Tensor, beta: float) -> Tensor:
    """Return c₁ and c₂, in units of β."""
    a, b, c, d = u
    x = torch.stack([d + b, a, c + b])
    key, query, value = ((x @ matrix.T)[None, None] for matrix in found)
    out: Tensor = Softmax(scaled=False)(query, key, value)
    return out[0, 0, :2] / beta


def _matrices(
    *, scale_query: bool = True, scale_value: bool = True, transpose: bool = False
) -> Callable[[Tensor, float], tuple[Tensor, Tensor, Tensor]]:
    def program(u: Tensor, beta: float) -> tuple[Tensor, Tensor, Tensor]:
        a, b, c, d = u
        query = torch.outer(d, a) + torch.outer(c, d)
        value = torch.outer(b, b) - torch.outer(c, c)
        query = query / beta**2 if scale_query else query
        value = value / beta**2 if scale_value else value
        return torch.eye(u.shape[1], dtype=u.dtype), query.T if transpose else query, value

    return program


@_exercise(
    "2.e.2",
    title="Matrices K, Q and V for given outputs",
    problem=r"""$u_a, u_b, u_c, u_d$ are orthogonal, each of length $\beta$. The inputs are
$x_1 = u_d + u_b$, $x_2 = u_a$, $x_3 = u_c + u_b$; keys are $K x_j$, queries $Q x_i$,
values $V x_j$, and weights $\mathrm{softmax}_j\left((K x_j) \cdot (Q x_i)\right)$. Find
$K, Q, V$ so that the outputs are $c_1 = u_b - u_c$ and $c_2 = u_b$, to within
$10^{-6} \beta$.""",
    explanation=r"$K = I$, $Q = (u_d u_a^\top + u_c u_d^\top) / \beta^2$,"
    r" $V = (u_b u_b^\top - u_c u_c^\top) / \beta^2$.",
    draw=_vectors,
    observe=_head_outputs,
    tolerance=1e-6,
    points=2,
    mistakes=[
        Mistake(
            "You left out β². An outer product u uᵀ stretches u by β²: divide by it.",
            _matrices(scale_query=False, scale_value=False),
            _matrices(scale_value=False),
        ),
        Mistake(
            "You transposed the outer products of Q. u vᵀ maps v to a multiple of u: put the"
            " key's vector first.",
            _matrices(transpose=True),
        ),
    ],
)
def head_matrices(
    u: Float[Tensor, "4 d"], beta: float
) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"], Float[Tensor, "d d"]]:
    """Return K, Q and V.

    u: u_a, u_b, u_c and u_d, one a row. beta: their length.
    """
    a, _, c, d = unit = u / beta
    picked = torch.diag(torch.tensor([0.0, 1.0, -1.0, 0.0], dtype=u.dtype))
    query = torch.einsum("ij,ik->jk", torch.stack([d, c]), torch.stack([a, d]))
    return torch.eye(u.shape[1], dtype=u.dtype), query, unit.T @ picked @ unit


def _document(rng: torch.Generator) -> Inputs:
    n, mask = integer(rng, 24, 32), 99
    document = torch.randint(0, 50, (n,), generator=rng).tolist()
    truncate_to = integer(rng, 9, n - 8)
    span = truncate_to // 4
    return {
        "document": document,
        "truncate_to": truncate_to,
        "start": integer(rng, 1, truncate_to - span),
        "mask": mask,
    }


def _corrupted(
    *, of_truncated: bool = True, shifted: bool = True, twice: bool = True
) -> Callable[[list[int], int, int, int], tuple[list[int], list[int]]]:
    def program(
        document: list[int], truncate_to: int, start: int, mask: int
    ) -> tuple[list[int], list[int]]:
        text = document[:truncate_to]
        end = start + len(text if of_truncated else document) // 4
        rest = [*text[:start], mask, *text[end:], *([mask] if twice else []), *text[start:end]]
        return rest[:-1], rest[1:] if shifted else rest[:-1]

    return program


@_exercise(
    "3.e",
    title="Span corruption",
    problem=r"""Truncate the document to its first `truncate_to` tokens. Cut out the span that
begins at `start` (from 0) and is a quarter of what is left long, rounded down. The corrupted
text is: what precedes the span, the mask token, what follows it, the mask token again,
the span. Return the model's input and its labels: every token is predicted from those
before.""",
    explanation="`prefix + [mask] + suffix + [mask] + span`; input without the last token, labels"
    " without the first.",
    draw=_document,
    mistakes=[
        Mistake(
            "You took a quarter of the whole document as the span: take a quarter of the"
            " truncated one.",
            _corrupted(of_truncated=False),
        ),
        Mistake(
            "You returned labels that equal the input: shift them by one token.",
            _corrupted(shifted=False),
        ),
        Mistake(
            "You left out the second mask token: put it before the span.", _corrupted(twice=False)
        ),
    ],
)
def span_corruption(
    document: list[int], truncate_to: int, start: int, mask: int
) -> tuple[list[int], list[int]]:
    """Return input and labels.

    document: token ids. start: place of the span. mask: id of the mask token.
    """
    text = torch.tensor(document[:truncate_to])
    prefix, span, suffix = text.split([start, len(text) // 4, len(text) - start - len(text) // 4])
    sentinel = torch.tensor([mask])
    corrupted = torch.cat([prefix, sentinel, suffix, sentinel, span])
    return corrupted[:-1].tolist(), corrupted[1:].tolist()


def _projected_walk(rng: torch.Generator) -> Inputs:
    n, k = 6, 3  # as wide as long, so that projecting the width runs too
    return {
        **{name: normal(rng, n, n) for name in "qkv"},
        "e": normal(rng, k, n),
        "f": normal(rng, k, n),
        "length": integer(rng, 3, 5),
    }


def _linformer(
    q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor, length: int, *, width: bool = False
) -> Tensor:
    real = (torch.arange(len(k)) < length)[:, None]
    k, v = k * real, v * real
    if width:
        hidden = ~real.T
        weights = (q @ e.T @ (k @ e.T).T / math.sqrt(q.shape[1])).masked_fill(hidden, -math.inf)
        return weights.softmax(-1) @ v
    return (q @ (e @ k).T / math.sqrt(q.shape[1])).softmax(-1) @ (f @ v)


@_exercise(
    "3.g.1",
    title="Linformer",
    problem=r"""Linformer mixes the rows of keys and values to $k$ rows by $E$ and $F$:
$\mathrm{softmax}\left(Q (EK)^\top / \sqrt d\right) FV$. The sequence is padded to $n$
rows; only the first `length` keys and values are real, and padding must not change the
result.""",
    explanation="Zero the padded rows of K and V before they are projected.",
    draw=_projected_walk,
    mistakes=[
        Mistake(
            "You projected the width. E and F shorten the sequence: multiply by them from the"
            " left.",
            lambda **inputs: _linformer(**inputs, width=True),
            lambda q, k, v, e, f, length: _linformer(q, k, v, e, f, len(k), width=True),
        ),
        Mistake(
            "You let the rows beyond `length` enter the mixtures: set them to 0 before you"
            " project.",
            lambda q, k, v, e, f, length: _linformer(q, k, v, e, f, len(k)),
        ),
        Mistake(
            "You projected the values by E: use their own matrix, F.",
            lambda q, k, v, e, f, length: _linformer(q, k, v, e, e, length),
        ),
    ],
)
def linformer_attention(
    q: Float[Tensor, "n d"],
    k: Float[Tensor, "n d"],
    v: Float[Tensor, "n d"],
    e: Float[Tensor, "rows n"],
    f: Float[Tensor, "rows n"],
    length: int,
) -> Float[Tensor, "n d"]:
    """Return Linformer's output for all n queries.

    length: number of real keys and values.
    """
    layer = Linformer(length=len(k), k=len(e)).double()
    with torch.no_grad():
        layer.project_key.copy_(e[None])
        layer.project_value.copy_(f[None])
        mask = Mask.lengths(torch.tensor([length]))
        out: Tensor = layer(q[None, None], k[None, None], v[None, None], mask=mask)
    return out[0, 0]


def _block_pattern(rng: torch.Generator) -> Inputs:
    n = integer(rng, 9, 12)
    return {
        "n": n,
        "window": integer(rng, 1, 2),
        "n_global": integer(rng, 1, 2),
        "random": [torch.randperm(n, generator=rng)[:1].tolist() for _ in range(n)],
    }


def _big_bird(
    n: int, window: int, n_global: int, random: list[list[int]], *, wrong: str = ""
) -> Tensor:
    i, j = torch.arange(n)[:, None], torch.arange(n)
    near = (i - j).abs() <= window
    if wrong == "one side":
        near &= j <= i
    rows = i < n_global if wrong != "global queries" else i < 0
    columns = j < n_global if wrong != "global keys" else j < 0
    drawn = torch.tensor([[key in keys for key in range(n)] for keys in random])
    return near | rows | columns | drawn


@_exercise(
    "3.g.2",
    title="The mask of BigBird",
    problem=r"""In BigBird, query $i$ may look at key $j$ if they are at most `window` positions
apart, if one of the two is among the first `n_global` positions, or if $j$ is one of the
keys `random[i]`. Return the mask.""",
    explanation="The union of a band, the first rows, the first columns, and the random pairs.",
    draw=_block_pattern,
    mistakes=[
        Mistake(
            "You left keys hidden from global queries: fill the rows of global tokens.",
            lambda **inputs: _big_bird(**inputs, wrong="global queries"),
        ),
        Mistake(
            "You hid global keys from some queries: fill the columns of global tokens.",
            lambda **inputs: _big_bird(**inputs, wrong="global keys"),
        ),
        Mistake(
            "You gave the window one side only: include the keys on both sides of the query.",
            lambda **inputs: _big_bird(**inputs, wrong="one side"),
        ),
    ],
)
def big_bird_mask(
    n: int, window: int, n_global: int, random: list[list[int]]
) -> Bool[Tensor, "n n"]:
    """Return the mask: True where query i (row) may look at key j (column).

    random: a list of keys for each query.
    """
    mask = Mask.window(window).to_dense(n, n, torch.device("cpu"))[0, 0].clone()
    mask[:n_global] = mask[:, :n_global] = True
    for i, keys in enumerate(random):
        mask[i, keys] = True
    return mask


def _vectors_and_directions(rng: torch.Generator) -> Inputs:
    n, d, m = 3, integer(rng, 3, 5), integer(rng, 4, 6)
    return {"x": normal(rng, n, d), "w": normal(rng, m, d)}


def _exponentials(x: Tensor, w: Tensor, *, power: float = 0.25, norm: bool = True) -> Tensor:
    x = x / x.shape[1] ** power
    square = x.square().sum(-1, keepdim=True) / 2 if norm else 0.0
    return (x @ w.T - square).exp() / math.sqrt(len(w))


@_exercise(
    "3.h.3",
    title="Positive random features",
    problem=r"""For rows $w_i \sim \mathcal N(0, I)$ return features $\phi(x)$ with positive entries
such that $\mathrm{E}[\phi(q) \cdot \phi(k)] = e^{q \cdot k / \sqrt d}$, in the order of
the rows of $w$ (Choromanski et al., 2021, lemma 1).""",
    explanation=r"With $z = x / d^{1/4}$: $\phi(x)_i = e^{w_i \cdot z - \|z\|^2 / 2} / \sqrt m$.",
    draw=_vectors_and_directions,
    mistakes=[
        Mistake(
            "You left −‖x‖²/2 out of the exponent. The estimate is biased without it: include"
            " it, for the divided x.",
            lambda x, w: _exponentials(x, w, norm=False),
        ),
        Mistake(
            "You divided x by √d. Query and key share this root: divide each by d^¼.",
            lambda x, w: _exponentials(x, w, power=0.5),
        ),
        Mistake(
            "You didn't divide x, but the kernel is that of q·k/√d: divide it by d^¼.",
            lambda x, w: _exponentials(x, w, power=0.0),
        ),
        Mistake(
            "You left out the factor 1/√m. The kernel is a mean over m directions: multiply the"
            " features by it.",
            lambda x, w: _exponentials(x, w) * math.sqrt(len(w)),
        ),
    ],
)
def positive_features(x: Float[Tensor, "n d"], w: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """Return φ(x) for each row of x.

    w: random directions, one a row.
    """
    features = FavorPositive(d=x.shape[1], features=len(w)).double()
    features.directions.copy_(w)
    values, scale = features(x)
    out: Tensor = values * scale.exp()[:, None]
    return out
