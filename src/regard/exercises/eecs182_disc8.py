"""EECS 182, Discussion 8: a head by hand, an RNN with attention, position vectors."""

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Argmax, Attention, Softmax
from regard.exercises.exercise import Inputs, Mistake, exercise, integer, normal
from regard.positions import Sinusoidal

_exercise = partial(exercise, "eecs182-disc8")


def _states_and_matrices(rng: torch.Generator) -> Inputs:
    def small(*shape: int) -> Tensor:
        return torch.randint(-2, 3, shape, generator=rng).double()

    return {"h": small(3, 2), **{f"w_{name}": small(2, 2) for name in "qkv"}}


def _projections(
    h: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, *, transpose: bool = False
) -> list[Tensor]:
    """Return queries, keys and values, one a row."""
    return [h @ (w if transpose else w.T) for w in (w_q, w_k, w_v)]


def _outputs(attend: Attention, projected: list[Tensor]) -> Tensor:
    """Return the outputs of one head, one a row."""
    outputs: Tensor = attend(*(x[None, None] for x in projected))
    return outputs[0, 0]


def _by_hand(
    *, transpose: bool = False, axis: int = 1, scale: float = 1.0
) -> Callable[..., Tensor]:
    def program(**inputs: Tensor) -> Tensor:
        q, k, v = _projections(**inputs, transpose=transpose)
        return (q @ k.T / scale).softmax(axis) @ v

    return program


_TRANSPOSED = (
    "You multiplied by the transposed matrices. With states in rows, W h is h Wᵀ: transpose them."
)
_HEAD = r"""States $h_1, \dots, h_n$ are columns: $q_i = W_q h_i$, $k_i = W_k h_i$,
$v_i = W_v h_i$. The score of query $i$ and key $j$ is $q_i \cdot k_j$, without a scale."""


@_exercise(
    "2.a–2.b",
    title="Self-attention by hand",
    problem=_HEAD
    + r""" Return all outputs $h'_i = \sum_j \alpha_{ij} v_j$ with softmax weights.""",
    explanation=r"Row by row $q_i = W_q h_i$, so $Q = H W_q^\top$; weights of a query sum to 1 over"
    " the keys.",
    draw=_states_and_matrices,
    mistakes=[
        Mistake(_TRANSPOSED, _by_hand(transpose=True)),
        Mistake(
            "You took the softmax over queries: take it over keys, so that the weights of each"
            " query sum to 1.",
            _by_hand(axis=0),
        ),
        Mistake("You divided the scores by √d: leave out this scale.", _by_hand(scale=2**0.5)),
    ],
)
def self_attention(
    h: Float[Tensor, "n d"],
    w_q: Float[Tensor, "d d"],
    w_k: Float[Tensor, "d d"],
    w_v: Float[Tensor, "d d"],
) -> Float[Tensor, "n d"]:
    """Return h'_i in row i.

    h: states, one a row.
    """
    return _outputs(Softmax(scaled=False), _projections(h, w_q, w_k, w_v))


def _hard(*, transpose: bool = False, axis: int = 1) -> Callable[..., Tensor]:
    def program(**inputs: Tensor) -> Tensor:
        q, k, v = _projections(**inputs, transpose=transpose)
        best = (q @ k.T).argmax(axis)
        return v[best]

    return program


def _untied(rng: torch.Generator) -> Inputs:
    """Draw until no two scores of a query are equal."""
    while True:
        inputs = _states_and_matrices(rng)
        q, k, _ = _projections(**inputs)
        best = (q @ k.T).topk(2).values
        if bool((best[:, 0] > best[:, 1]).all()):
            return inputs


@_exercise(
    "2.c",
    title="Argmax instead of softmax",
    problem=_HEAD
    + r""" Return all outputs if argmax takes the place of softmax: all weight goes to the
key with the largest score.""",
    explanation=r"$h'_i = v_j$ with $j = \arg\max_j q_i \cdot k_j$.",
    draw=_untied,
    mistakes=[
        Mistake(
            "You used softmax weights: give all weight to the key with the largest score.",
            _by_hand(),
        ),
        Mistake("You took the argmax over queries: take it over keys.", _hard(axis=0)),
        Mistake(_TRANSPOSED, _hard(transpose=True)),
    ],
)
def argmax_attention(
    h: Float[Tensor, "n d"],
    w_q: Float[Tensor, "d d"],
    w_k: Float[Tensor, "d d"],
    w_v: Float[Tensor, "d d"],
) -> Float[Tensor, "n d"]:
    """Return h'_i in row i.

    h: states, one a row.
    """
    return _outputs(Argmax(scaled=False), _projections(h, w_q, w_k, w_v))


def _encoder_and_decoder(rng: torch.Generator) -> Inputs:
    n = integer(rng, 3, 4)
    return {
        "encoder": normal(rng, n, 3),
        "decoder": normal(rng, n, 3),  # same length, so that every mistake runs
        "w_out": normal(rng, 4, 6),
    }


def _read_out(
    *, attended: str = "encoder", axis: int = 1, state_first: bool = True
) -> Callable[..., Tensor]:
    def program(encoder: Tensor, decoder: Tensor, w_out: Tensor) -> Tensor:
        states = {"encoder": encoder, "decoder": decoder}[attended]
        context = (decoder @ states.T).softmax(axis) @ states
        pair = [decoder, context] if state_first else [context, decoder]
        return torch.cat(pair, -1) @ w_out.T

    return program


@_exercise(
    "1.c",
    title="A recurrent decoder with attention",
    problem=r"""At step $t$ the decoder's state $s_t$ is scored against every encoder state,
$s_t \cdot h_i$; softmax over the encoder's states gives weights, and the context $c_t$ is
the weighted sum of the encoder's states. Return the scores of the output tokens,
$W_{out} [s_t; c_t]$, for every step.""",
    explanation=r"`softmax(S Hᵀ, dim=-1) H`, beside $S$, times $W_{out}^\top$.",
    draw=_encoder_and_decoder,
    mistakes=[
        Mistake(
            "You attended to the decoder's own states: attend to the encoder's.",
            _read_out(attended="decoder"),
        ),
        Mistake(
            "You took the softmax over the decoder's steps: take it over the encoder's states,"
            " for each step.",
            _read_out(axis=0),
        ),
        Mistake(
            "You exchanged context and state: put the state first.", _read_out(state_first=False)
        ),
    ],
)
def attention_readout(
    encoder: Float[Tensor, "n d"],
    decoder: Float[Tensor, "m d"],
    w_out: Float[Tensor, "tokens two_d"],
) -> Float[Tensor, "m tokens"]:
    """Return W_out [s_t; c_t] in row t.

    encoder: states h_i. decoder: states s_t.
    """
    query, key = decoder[None, None], encoder[None, None]
    context: Tensor = Softmax(scaled=False)(query, key, key)
    return torch.cat([decoder, context[0, 0]], -1) @ w_out.T


def _length_and_width(rng: torch.Generator) -> Inputs:
    return {"length": integer(rng, 3, 6), "d": 2 * integer(rng, 2, 4)}


def _angles(length: int, d: int, factor: float = 2.0) -> Tensor:
    k = torch.arange(d // 2, dtype=torch.float64)
    return torch.outer(torch.arange(length, dtype=torch.float64), 10000 ** (-factor * k / d))


def _interleaved(angles: Tensor) -> Tensor:
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


@_exercise(
    "1.e",
    title="Sine positions",
    problem=r"""Return the vectors of positions $t = 0, 1, \dots$: entries $2k$ and $2k + 1$ are
$\sin(\omega_k t)$ and $\cos(\omega_k t)$ with $\omega_k = 10000^{-2k/d}$, for
$k = 0, \dots, d/2 - 1$.""",
    explanation="Sines and cosines interleave; the frequency varies along the vector.",
    draw=_length_and_width,
    mistakes=[
        Mistake(
            "You put all sines before all cosines: alternate them.",
            lambda length, d: torch.cat([_angles(length, d).sin(), _angles(length, d).cos()], -1),
        ),
        Mistake(
            "You used the exponent k/d. k ends at d/2 − 1: use 2k/d.",
            lambda length, d: _interleaved(_angles(length, d, 1.0)),
        ),
        Mistake(
            "You counted positions from 1: begin at t = 0.",
            lambda length, d: _interleaved(_angles(length + 1, d))[1:],
        ),
    ],
)
def sine_positions(length: int, d: int) -> Float[Tensor, "length d"]:
    """Return the position vectors, one a row.

    d: width, even.
    """
    return Sinusoidal(length=length, d=d).vectors


def _two_heads(rng: torch.Generator) -> Inputs:
    n, heads = 4, 2
    return {**{name: normal(rng, n, 4) for name in "qkv"}, "heads": heads}


def _multi_head(
    *, width: str = "head", split: bool = True, merge: bool = True
) -> Callable[..., Tensor]:
    def program(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
        n, d = q.shape
        scale = math.sqrt(d // heads if width == "head" else d)
        parts = [
            x.view(n, heads, -1).transpose(0, 1) if split else x.view(heads, n, -1)
            for x in (q, k, v)
        ]
        out = (parts[0] @ parts[1].mT / scale).softmax(-1) @ parts[2]
        return (out.transpose(0, 1) if merge else out).reshape(n, d)

    return program


@_exercise(
    "2.d",
    title="Several heads",
    problem=r"""Split queries, keys and values into heads of consecutive columns, compute scaled
dot-product attention in each (divided by the root of the head's width) and return the
outputs side by side.""",
    explanation="`x.view(n, heads, -1).transpose(0, 1)`, and back.",
    draw=_two_heads,
    mistakes=[
        Mistake(
            "You divided by the root of the whole width: divide a head's scores by the root of"
            " its own.",
            _multi_head(width="model"),
        ),
        Mistake(
            "You split the rows into heads. Heads are groups of columns: split the last axis,"
            " then transpose.",
            _multi_head(split=False, merge=False),
            _multi_head(split=False),
        ),
        Mistake(
            "You computed one head of all columns: split the columns into heads.",
            lambda q, k, v, heads: _multi_head()(q, k, v, heads=1),
        ),
    ],
)
def multi_head_attention(
    q: Float[Tensor, "n d"], k: Float[Tensor, "n d"], v: Float[Tensor, "n d"], heads: int
) -> Float[Tensor, "n d"]:
    """Return the outputs of all heads, side by side."""
    split = (torch.stack(x.chunk(heads, -1))[None] for x in (q, k, v))
    out: Tensor = Softmax()(*split)
    return torch.cat(list(out[0]), -1)
