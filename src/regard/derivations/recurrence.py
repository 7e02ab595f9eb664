"""Gradients of softmax with cross-entropy, and of a recurrent network through time."""

from collections.abc import Sequence
from functools import cache, partial

import torch
from jaxtyping import Float64
from torch import Generator, Tensor
from torch.autograd.functional import jacobian

from regard.derivations.derivation import Derivation, Inputs, Step
from regard.derivations.draws import normal, size
from regard.derivations.tex_scope import FromZero, Letter


def _labels(generator: Generator, *shape: int) -> Float64[Tensor, "*shape"]:
    """Soft labels, which sum to 1."""
    positive = normal(generator, *shape).exp()
    labels: Tensor = positive / positive.sum(-1, keepdim=True)
    return labels


def _softmax(o: Float64[Tensor, " c"]) -> Float64[Tensor, " c"]:
    powers = o.exp()
    return powers / powers.sum()


def _cross_entropy(y: Float64[Tensor, " c"], o: Float64[Tensor, " c"]) -> Float64[Tensor, ""]:
    return -(y * _softmax(o).log()).sum()


def _draw_logits(generator: Generator) -> Inputs:
    c = size(generator, 2, 6)
    return Inputs(o=normal(generator, c), y=_labels(generator, c))


def _logit_letters(x: Inputs) -> dict[str, Letter]:
    """ŷ, and the derivatives by the logits, by autograd."""
    return {
        "hat y": _softmax(x.o),
        "∂hat y_/∂o_": jacobian(_softmax, x.o),
        "∂J/∂o_": jacobian(lambda o: _cross_entropy(x.y, o), x.o),
    }


SOFTMAX_CROSS_ENTROPY = Derivation(
    name="softmax-cross-entropy",
    title="Gradient of cross-entropy after a softmax",
    given=r"Logits $o$, their softmax $\hat y_i = e^{o_i} / \sum_l e^{o_l}$, and labels $y$ with "
    r"$\sum_i y_i = 1$: a one-hot vector, or any distribution. The loss is "
    r"$J = -\sum_i y_i \log \hat y_i$. The course does not state that labels sum to 1; "
    r"without it, the result is $(\sum_i y_i) \hat y - y$.",
    draw=_draw_logits,
    letters=_logit_letters,
    indices=lambda x: dict.fromkeys("ijl", range(1, len(x.o) + 1)),
    steps=(
        Step(
            r"\frac{\partial \hat y_i}{\partial o_j}",
            "The softmax first, with each output by each logit. Evaluated by autograd.",
        ),
        Step(
            r"= \frac{\delta_{ij} \, e^{o_i} \sum_l e^{o_l} - e^{o_i} e^{o_j}}"
            r"{\left(\sum_l e^{o_l}\right)^2}",
            r"Quotient rule. The numerator $e^{o_i}$ depends on $o_j$ only if $i = j$, for which "
            r"$\delta_{ij} = 1$; the denominator always does.",
        ),
        Step(
            r"= \hat y_i (\delta_{ij} - \hat y_j)",
            r"Divide both terms by $\left(\sum_l e^{o_l}\right)^2$.",
        ),
        Step(
            r"\frac{\partial J}{\partial o_j}", "Now the loss by each logit. Evaluated by autograd."
        ),
        Step(
            r"= -\sum_i \frac{y_i}{\hat y_i} \, \frac{\partial \hat y_i}{\partial o_j}",
            r"Chain rule, with $\frac{\partial}{\partial \hat y_i} \log \hat y_i = 1 / \hat y_i$.",
        ),
        Step(
            r"= -\sum_i \frac{y_i}{\hat y_i} \, \hat y_i (\delta_{ij} - \hat y_j)",
            "Insert the derivative of the softmax.",
        ),
        Step(r"= -\sum_i y_i (\delta_{ij} - \hat y_j)", r"$\hat y_i$ cancels."),
        Step(
            r"= \hat y_j \sum_i y_i - y_j",
            r"Split the sum; only $i = j$ remains of the first part.",
        ),
        Step(
            r"= \hat y_j - y_j",
            r"Labels sum to 1. As a vector: $\frac{\partial J}{\partial o} = \hat y - y$.",
        ),
    ),
)


def _draw_network(generator: Generator) -> Inputs:
    d_in, d, c, steps = (size(generator, *bounds) for bounds in ((1, 3), (1, 4), (2, 3), (2, 4)))
    w_hx: Float64[Tensor, "d d_in"] = normal(generator, d, d_in)
    w_hh: Float64[Tensor, "d d"] = normal(generator, d, d)
    w_yh: Float64[Tensor, "c d"] = normal(generator, c, d)
    x: Float64[Tensor, "steps d_in"] = normal(generator, steps, d_in)
    y: Float64[Tensor, "steps c"] = _labels(generator, steps, c)
    return Inputs(W_hx=w_hx, W_hh=w_hh, W_yh=w_yh, x=x, y=y)


def _states(x: Inputs, copies: Sequence[Tensor] = ()) -> list[Float64[Tensor, " d"]]:
    """h_0 = 0, h_1, …, h_T; `copies` has a separate copy of W_hh for each step."""
    states = [x.W_hh.new_zeros(len(x.W_hh))]
    for s, row in enumerate(x.x):
        matrix = copies[s] if len(copies) else x.W_hh
        states.append(matrix @ states[-1] + x.W_hx @ row)
    return states


def _loss(x: Inputs, t: int, h: Float64[Tensor, " d"]) -> Float64[Tensor, ""]:
    """J_t from the state h_t."""
    return _cross_entropy(x.y[t - 1], x.W_yh @ h)


def _loss_given(x: Inputs, t: int, i: int, h: Float64[Tensor, " d"]) -> Float64[Tensor, ""]:
    """J_t if the state of step i is h; later states are computed from it."""
    state, loss = _states(x)[0], h.new_zeros(())
    for s, row in enumerate(x.x, 1):
        state = h if s == i else x.W_hh @ state + x.W_hx @ row
        if s == t:
            loss = _loss(x, t, state)
    return loss


def _whole_loss(x: Inputs, w_hh: Float64[Tensor, "d d"]) -> Float64[Tensor, ""]:
    """J with this W_hh."""
    states = _states(Inputs(x | {"W_hh": w_hh}))
    return torch.stack([_loss(x, t, states[t]) for t in _steps_of(x)]).sum()


def _by_matrix(x: Inputs, t: int) -> Float64[Tensor, "d d"]:
    """∂J_t/∂W_hh by autograd."""

    def loss(w_hh: Tensor) -> Tensor:
        return _loss(x, t, _states(Inputs(x | {"W_hh": w_hh}))[t])

    gradient: Tensor = jacobian(loss, x.W_hh)
    return gradient


def _by_copies(x: Inputs, t: int) -> Float64[Tensor, "steps d d"]:
    """∂J_t/∂W_hh^(i) for each i by autograd, with a copy of W_hh in each step."""

    def loss(copies: Tensor) -> Tensor:
        return _loss(x, t, _states(x, list(copies))[t])

    gradients: Tensor = jacobian(loss, x.W_hh.repeat(len(x.x), 1, 1))
    return gradients


def _by_state(x: Inputs, t: int, i: int) -> Float64[Tensor, " d"]:
    """∂J_t/∂h_i by autograd."""
    gradient: Tensor = jacobian(lambda h: _loss_given(x, t, i, h), _states(x)[i])
    return gradient


def _g_o(x: Inputs, t: int) -> Float64[Tensor, " c"]:
    """ŷ_t − y_t."""
    return _softmax(x.W_yh @ _states(x)[t]) - x.y[t - 1]


def _steps_of(x: Inputs) -> range:
    return range(1, len(x.x) + 1)


def _deltas(x: Inputs) -> list[Float64[Tensor, " d"]]:
    """δ_i = W_yhᵀ g_{o_i} + W_hhᵀ δ_(i+1) for each i, from the last step to the first."""
    deltas = [x.W_hh.new_zeros(len(x.W_hh))]
    for i in reversed(_steps_of(x)):
        deltas.insert(0, x.W_yh.T @ _g_o(x, i) + x.W_hh.T @ deltas[0])
    return deltas[:-1]


def _next_by_state(x: Inputs, i: int) -> Float64[Tensor, "d d"]:
    """∂h_(i+1)/∂h_i by autograd."""
    by_state: Tensor = jacobian(lambda h: x.W_hh @ h + x.W_hx @ x.x[i], _states(x)[i])
    return by_state


def _loss_by_output(x: Inputs, t: int) -> Float64[Tensor, " c"]:
    """∂J_t/∂o_t by autograd."""
    output = x.W_yh @ _states(x)[t]
    by_output: Tensor = jacobian(lambda o: _cross_entropy(x.y[t - 1], o), output)
    return by_output


def _if(holds: bool, value: Tensor) -> Tensor:
    """Return a value if it is defined, else NaN."""
    return value if holds else torch.full_like(value, torch.nan)


def _network_letters(x: Inputs) -> dict[str, Letter]:
    """T, states, g_{o_t}, δ_i, and derivatives by autograd."""
    by_output = torch.stack([_loss_by_output(x, t) for t in _steps_of(x)])
    return {
        "T": x.x.new_tensor(len(x.x)),
        "h": FromZero(torch.stack(_states(x))),
        "go": torch.stack([_g_o(x, t) for t in _steps_of(x)]),
        "delta": torch.stack(_deltas(x)),
        "∂J_/∂o_": cache(lambda t, other: _if(t == other, by_output[t - 1])),
        "∂o_/∂h_": cache(lambda t, other: _if(t == other, jacobian(x.W_yh.matmul, _states(x)[t]))),
        "∂h_/∂h_": cache(lambda after, i: _if(after == i + 1, _next_by_state(x, i))),
        "∂J_/∂h_": cache(partial(_by_state, x)),
        "∂J_/∂Whh": cache(partial(_by_matrix, x)),
        "∂J_/∂Whh_": cache(lambda t, i: _by_copies(x, t)[i - 1]),
        "∂J/∂Whh": jacobian(lambda w: _whole_loss(x, w), x.W_hh),
    }


BACKPROPAGATION_THROUGH_TIME = Derivation(
    name="backpropagation-through-time",
    title="Backpropagation through time",
    given=r"A recurrent network without activation: $h_t = W_{hh} h_{t-1} + W_{hx} x_t$, "
    r"$o_t = W_{yh} h_t$, $\hat y_t = \mathrm{softmax}(o_t)$, "
    r"$J_t = -\sum_k y_{t,k} \log \hat y_{t,k}$ and $J = \sum_{t=1}^T J_t$. Labels sum to 1. The "
    r"course leaves $h_0$ open; here $h_0 = 0$. A gradient has the shape of its variable: those "
    r"of states are columns. Write $g_{o_t} = \frac{\partial J_t}{\partial o_t}$. Lines with $t$ "
    r"and $i$ are checked for all of them.",
    draw=_draw_network,
    letters=_network_letters,
    indices=lambda x: dict.fromkeys("ti", _steps_of(x)),
    steps=(
        Step(
            r"\frac{\partial J_t}{\partial h_t}",
            "The state of the same step first. Evaluated by autograd.",
        ),
        Step(
            r"= \left(\frac{\partial o_t}{\partial h_t}\right)^\top "
            r"\frac{\partial J_t}{\partial o_t}",
            r"Chain rule: $h_t$ enters $J_t$ through $o_t$ only.",
        ),
        Step(
            r"= W_{yh}^\top \, g_{o_t}",
            r"$o_t$ is linear in $h_t$, and $g_{o_t} = \hat y_t - y_t$ for softmax with "
            "cross-entropy.",
        ),
        Step(
            r"\frac{\partial J_t}{\partial h_i}, \quad i < t",
            "Earlier states. Evaluated by autograd through all steps between.",
        ),
        Step(
            r"= \left(\frac{\partial h_{i+1}}{\partial h_i}\right)^\top "
            r"\frac{\partial J_t}{\partial h_{i+1}}, \quad i < t",
            r"Chain rule: $J_t$ depends on $h_i$ only through the next state $h_{i+1}$.",
        ),
        Step(
            r"= W_{hh}^\top \, \frac{\partial J_t}{\partial h_{i+1}}, \quad i < t",
            r"$h_{i+1} = W_{hh} h_i + W_{hx} x_{i+1}$ is linear in $h_i$. Note the transpose.",
        ),
        Step(
            r"= (W_{hh}^\top)^{t-i} \, \frac{\partial J_t}{\partial h_t}, \quad i < t",
            r"The same $t - i$ times, from $h_i$ to $h_t$.",
        ),
        Step(
            r"= (W_{hh}^\top)^{t-i} \, W_{yh}^\top \, g_{o_t}, \quad i < t",
            r"Insert the gradient of $h_t$. For $i = t$ the power is the identity.",
        ),
        Step(
            r"\frac{\partial J_t}{\partial h_i}, \quad i > t",
            "Later states. Evaluated by autograd.",
        ),
        Step(r"= 0, \quad i > t", r"$J_t$ is computed before $h_i$ exists."),
        Step(
            r"\frac{\partial J_t}{\partial W_{hh}}",
            "The matrix, which every step uses. Evaluated by autograd.",
        ),
        Step(
            r"= \sum_{i=1}^{t} \frac{\partial J_t}{\partial W_{hh}^{(i)}}",
            r"Give each step a copy $W_{hh}^{(i)} = W_{hh}$ of its own. All copies move together, "
            r"so that their gradients add up; those after $t$ have none.",
        ),
        Step(
            r"= \sum_{i=1}^{t} \frac{\partial J_t}{\partial h_i} \, h_{i-1}^\top",
            r"Entry $(a, b)$ of $W_{hh}^{(i)}$ adds to entry $a$ of $h_i$, and is multiplied with "
            r"entry $b$ of the state before, $h_{i-1}$.",
        ),
        Step(
            r"= \sum_{i=2}^{t} (W_{hh}^\top)^{t-i} \, W_{yh}^\top \, g_{o_t} \, h_{i-1}^\top",
            r"Insert the gradient of $h_i$. The term $i = 1$ is 0 because $h_0 = 0$.",
        ),
        Step(r"\frac{\partial J}{\partial W_{hh}}", "The whole loss. Evaluated by autograd."),
        Step(
            r"= \sum_{t=1}^{T} \frac{\partial J_t}{\partial W_{hh}}",
            r"$J$ is the sum of all $J_t$, and the derivative is linear.",
        ),
        Step(
            r"= \sum_{t=1}^{T} \sum_{i=1}^{t} (W_{hh}^\top)^{t-i} \, W_{yh}^\top \, g_{o_t} \, "
            r"h_{i-1}^\top",
            "Insert the result for each step.",
        ),
        Step(
            r"= \sum_{i=1}^{T} \delta_i \, h_{i-1}^\top, \quad "
            r"\delta_i = W_{yh}^\top g_{o_i} + W_{hh}^\top \delta_{i+1}, \quad \delta_{T+1} = 0",
            r"Exchange the sums: $\delta_i = \sum_{t \geq i} (W_{hh}^\top)^{t-i} W_{yh}^\top "
            r"g_{o_t}$ is computed backward in one pass. This is the algorithm.",
        ),
    ),
)

DERIVATIONS = (SOFTMAX_CROSS_ENTROPY, BACKPROPAGATION_THROUGH_TIME)
