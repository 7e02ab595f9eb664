"""Johns Hopkins, Homework 5: gradients of a recurrent network, and a recurrent translator."""

from collections.abc import Callable, Iterable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.exercises.exercise import Inputs, Mistake, exercise, integer, normal

_exercise = partial(exercise, "jhu-hw5")
_NETWORK = r"""A recurrent network without activation computes
$h_t = W_{hh} h_{t-1} + W_{hx} x_t$ with $h_0 = 0$, and $o_t = W_{yh} h_t$,
$\hat y_t = \mathrm{softmax}(o_t)$. The loss of step $t$ is
$J_t = -\sum_i y_{t,i} \log \hat y_{t,i}$."""


def distributions(rng: torch.Generator, rows: int, n: int) -> Float[Tensor, "rows n"]:
    """Return rows of positive numbers that sum to 1."""
    counts = torch.randint(1, 10, (rows, n), generator=rng, dtype=torch.float64)
    return counts / counts.sum(-1, keepdim=True)


def _logits_and_labels(rng: torch.Generator) -> Inputs:
    n = integer(rng, 3, 5)
    return {"o": normal(rng, n), "y": distributions(rng, 1, n)[0]}


@_exercise(
    "2.2.1",
    title="Gradient of softmax and cross-entropy",
    problem=r"""Scores $o$ become probabilities $\hat y = \mathrm{softmax}(o)$, and the loss is
$J = -\sum_i y_i \log \hat y_i$ for labels $y$ that sum to 1 (they may be soft).
Return $\partial J / \partial o$ in closed form, without autograd.""",
    explanation=r"$\hat y - y$: the Jacobian of softmax is $\mathrm{diag}(\hat y) - \hat y"
    r" \hat y^\top$, and $y$ sums to 1.",
    draw=_logits_and_labels,
    autograd=False,
    mistakes=[
        Mistake("You reversed the sign: subtract y from ŷ.", lambda o, y: y - o.softmax(-1)),
        Mistake(
            "You used only the diagonal of softmax's Jacobian. Every probability depends on"
            " every score: use all entries.",
            lambda o, y: -y * (1 - o.softmax(-1)),
        ),
    ],
)
def softmax_gradient(
    o: Float[Tensor, " classes"], y: Float[Tensor, " classes"]
) -> Float[Tensor, " classes"]:
    """Return ∂J/∂o.

    o: scores. y: labels that sum to 1.
    """
    o.requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(o, y), o)
    return gradient


def _weights_and_step(rng: torch.Generator) -> Inputs:
    steps = integer(rng, 4, 6)
    return {
        "w_hh": normal(rng, 3, 3),
        "w_yh": normal(rng, 2, 3),
        "g": normal(rng, 2),
        "t": integer(rng, 2, steps - 1),
        "steps": steps,
    }


def _propagated(
    first: Float[Tensor, " d"], factors: Iterable[Float[Tensor, "d d"] | None]
) -> Float[Tensor, "steps d"]:
    """Return a gradient times each factor; None gives 0."""
    rows = [first * 0 if factor is None else factor @ first for factor in factors]
    return torch.stack(rows)


def _with_power(power: Callable[[int, int], int]) -> Callable[..., Tensor]:
    """Return a program that raises W_hhᵀ to a power of t and i, even if i > t."""

    def program(w_hh: Tensor, w_yh: Tensor, g: Tensor, t: int, steps: int) -> Tensor:
        powers = [torch.linalg.matrix_power(w_hh.T, power(t, i)) for i in range(1, steps + 1)]
        return _propagated(w_yh.T @ g, powers)

    return program


def _without_transpose(w_hh: Tensor, w_yh: Tensor, g: Tensor, t: int, steps: int) -> Tensor:
    powers = [torch.linalg.matrix_power(w_hh, t - i) for i in range(1, t + 1)]
    return _propagated(w_yh.T @ g, [*powers, *[None] * (steps - t)])


@_exercise(
    "2.2.2",
    title="Gradient of one step's loss at every state",
    problem=_NETWORK
    + r"""

Given $g = \partial J_t / \partial o_t$, return $\partial J_t / \partial h_i$ for every
$i = 1, \dots, \text{steps}$.""",
    explanation=r"$(W_{hh}^\top)^{t-i} W_{yh}^\top g$ for $i \le t$; $0$ for $i > t$, since"
    r" later states have no part in $J_t$.",
    draw=_weights_and_step,
    mistakes=[
        Mistake(
            "You multiplied by W_hh. Gradients go backward through its transpose: multiply by"
            " W_hhᵀ.",
            _without_transpose,
        ),
        Mistake(
            "You returned nonzero gradients for i > t. A later state has no part in J_t: return"
            " 0 there.",
            _with_power(lambda t, i: abs(t - i)),
            _with_power(lambda t, i: max(t - i, 0)),
            _with_power(lambda t, i: t - i),
        ),
    ],
)
def state_gradients(
    w_hh: Float[Tensor, "d d"],
    w_yh: Float[Tensor, "out d"],
    g: Float[Tensor, " out"],
    t: int,
    steps: int,
) -> Float[Tensor, "steps d"]:
    """Return ∂J_t/∂h_i in row i − 1, for i = 1, …, steps.

    g: ∂J_t/∂o_t. t: counts from 1.
    """
    states = [torch.zeros(len(w_hh), dtype=g.dtype, requires_grad=True)]
    for _ in range(steps - 1):
        states.append(w_hh @ states[-1])
    score = w_yh @ states[t - 1] @ g  # whose gradient with respect to o_t is g
    gradients = torch.autograd.grad(score, states, allow_unused=True, materialize_grads=True)
    return torch.stack(gradients)


def _sequence(rng: torch.Generator) -> Inputs:
    steps = integer(rng, 3, 4)
    return {
        "w_hx": normal(rng, 3, 2),
        "w_hh": normal(rng, 3, 3),
        "w_yh": normal(rng, 2, 3),
        "x": normal(rng, steps, 2),
        "y": distributions(rng, steps, 2),
    }


def _by_hand(*, shift: int = 1, all_steps: bool = True) -> Callable[..., Tensor]:
    """Return a program that sums products of ∂J_t/∂h_i and h_(i − shift)."""

    def program(w_hx: Tensor, w_hh: Tensor, w_yh: Tensor, x: Tensor, y: Tensor) -> Tensor:
        h = [x.new_zeros(len(w_hh))]
        for row in x:
            h.append(w_hh @ h[-1] + w_hx @ row)
        gradient = torch.zeros_like(w_hh)
        for t in range(1, len(x) + 1):
            g = w_yh.T @ ((w_yh @ h[t]).softmax(-1) - y[t - 1])
            for i in range(t, 0 if all_steps else t - 1, -1):
                gradient += torch.outer(g, h[i - shift])
                g = w_hh.T @ g
        return gradient

    return program


@_exercise(
    "2.2.3–2.2.4",
    title="Gradient of the recurrent weights",
    problem=_NETWORK
    + r"""

Return $\partial J / \partial W_{hh}$ of the whole loss $J = \sum_t J_t$, by your own
formula, without autograd.""",
    explanation=r"$\sum_t \sum_{i \le t} \frac{\partial J_t}{\partial h_i} h_{i-1}^\top$: one"
    r" matrix is used at every step, and each use multiplies the state before.",
    draw=_sequence,
    autograd=False,
    points=2,
    mistakes=[
        Mistake(
            "You multiplied by h_i. W_hh multiplies the state before it: use h_(i−1).",
            _by_hand(shift=0),
        ),
        Mistake(
            "You counted only the use of W_hh at i = t. J_t depends on W_hh at all earlier steps"
            " too: sum over them.",
            _by_hand(all_steps=False),
        ),
        Mistake(
            "You returned the transpose: put the new state in the rows and the one before in the"
            " columns.",
            lambda **inputs: _by_hand()(**inputs).T,
        ),
    ],
)
def recurrent_weight_gradient(
    w_hx: Float[Tensor, "d d_in"],
    w_hh: Float[Tensor, "d d"],
    w_yh: Float[Tensor, "out d"],
    x: Float[Tensor, "steps d_in"],
    y: Float[Tensor, "steps out"],
) -> Float[Tensor, "d d"]:
    """Return ∂J/∂W_hh.

    x: inputs, one a row. y: labels, each row sums to 1.
    """
    w_hh.requires_grad_()
    h, scores = x.new_zeros(len(w_hh)), []
    for row in x:
        h = w_hh @ h + w_hx @ row
        scores.append(w_yh @ h)
    loss = F.cross_entropy(torch.stack(scores), y, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, w_hh)
    return gradient


def _translator(rng: torch.Generator) -> Inputs:
    tokens, d = 6, 4
    source = torch.randint(2, tokens, (integer(rng, 3, 5),), generator=rng)
    encoder, decoder = (
        {f"u_{name}": 1.5 * normal(rng, d, d), f"w_{name}": 1.5 * normal(rng, d, d)}
        for name in ("enc", "dec")
    )
    return {
        "source": source.tolist(),
        "embedding": normal(rng, tokens, d),
        **encoder,
        **decoder,
        "w_out": 2 * normal(rng, tokens, d),
        "start": 0,
        "stop": 1,
        "max_tokens": 8,
    }


def _greedy(
    *, zero_state: bool = False, feed_back: bool = True, keep_stop: bool = False
) -> Callable[..., list[int]]:
    """Return a program that translates, with one mistake or another."""

    def program(
        source: list[int],
        embedding: Tensor,
        u_enc: Tensor,
        w_enc: Tensor,
        u_dec: Tensor,
        w_dec: Tensor,
        w_out: Tensor,
        start: int,
        stop: int,
        max_tokens: int,
    ) -> list[int]:
        h = embedding.new_zeros(len(u_enc))
        for token in [] if zero_state else source:
            h = torch.tanh(u_enc @ h + w_enc @ embedding[token])
        token, found = start, list[int]()
        while len(found) < max_tokens:
            h = torch.tanh(u_dec @ h + w_dec @ embedding[token if feed_back else start])
            token = int((w_out @ h).argmax())
            if token == stop:
                return [*found, stop] if keep_stop else found
            found.append(token)
        return found

    return program


@_exercise(
    "4.1",
    title="Sequence to sequence: greedy translation",
    problem=r"""An encoder reads the source: $h_t = \tanh(U_{enc} h_{t-1} + W_{enc} e(x_t))$ from
$h_0 = 0$, where $e(x)$ is row $x$ of the embedding. The decoder starts with the
encoder's last state, $s_0 = h_n$, and with the start token $y_0$:
$s_t = \tanh(U_{dec} s_{t-1} + W_{dec} e(y_{t-1}))$, and $y_t$ is the token with the
largest entry of $W_{out} s_t$.

Return the tokens $y_1, y_2, \dots$ before the stop token; stop after `max_tokens` tokens
if it doesn't come.""",
    explanation="One loop over the source, one over the target; each prediction is the next input.",
    draw=_translator,
    points=2,
    mistakes=[
        Mistake(
            "You started the decoder from zero, so that it never sees the source: start from the"
            " encoder's last state.",
            _greedy(zero_state=True),
        ),
        Mistake(
            "You gave the decoder the start token at every step: give it the token that it has"
            " just predicted.",
            _greedy(feed_back=False),
        ),
        Mistake(
            "You included the stop token: return only the tokens before it.",
            _greedy(keep_stop=True),
        ),
    ],
)
def greedy_translation(
    source: list[int],
    embedding: Float[Tensor, "tokens d"],
    u_enc: Float[Tensor, "d d"],
    w_enc: Float[Tensor, "d d"],
    u_dec: Float[Tensor, "d d"],
    w_dec: Float[Tensor, "d d"],
    w_out: Float[Tensor, "tokens d"],
    start: int,
    stop: int,
    max_tokens: int,
) -> list[int]:
    """Return the predicted tokens, without start and stop.

    embedding: one row a token. w_out: scores of the tokens, W_out s.
    """
    encoder, decoder = _rnn(w_enc, u_enc), _rnn(w_dec, u_dec)
    with torch.no_grad():
        _, state = encoder(embedding[source])
        tokens = [start]
        while stop not in tokens[1:] and len(tokens) <= max_tokens:
            out, state = decoder(embedding[tokens[-1:]], state)
            tokens.append(int((out @ w_out.T).argmax()))
    return [token for token in tokens[1:] if token != stop]


def _rnn(w: Float[Tensor, "d d"], u: Float[Tensor, "d d"]) -> nn.RNN:
    """Return torch's tanh network with these weights."""
    network = nn.RNN(w.shape[1], len(w), bias=False, dtype=w.dtype)
    with torch.no_grad():
        network.get_parameter("weight_ih_l0").copy_(w)
        network.get_parameter("weight_hh_l0").copy_(u)
    return network
