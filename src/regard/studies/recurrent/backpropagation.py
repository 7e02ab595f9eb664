"""Backpropagation through time: the gradient by formula, its growth, and its overflow."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2, nan
from typing import Annotated, Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32, Float64
from msgspec import Meta
from torch import Tensor, nn

from regard.studies.figure import Arrow, Chart, Drawing, Graph, Line, Node, figure, formula_chart
from regard.studies.finding import Measurements, at_least, at_most, equal, table
from regard.studies.study import EvidenceParts, study
from regard.studies.tensors import central_differences, largest, matrix, vector_text

Rows: TypeAlias = tuple[tuple[Annotated[float, Meta(ge=-2, le=2)], ...], ...]
Activation: TypeAlias = Literal["identity", "tanh"]
Activate: TypeAlias = Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[Activation, Activate] = {"identity": torch.clone, "tanh": torch.tanh}
Inputs: TypeAlias = Float[Tensor, "steps d_in"]
Labels: TypeAlias = Float[Tensor, "steps out"]
_WHERE = "backpropagation-through-time: "
_HX = ((0.5, -0.2, 0.1), (0.3, 0.8, -0.5), (-0.6, 0.4, 0.2), (0.1, -0.3, 0.7))
_HH = ((0.2, -0.5, 0.3, 0.1), (0.4, 0.6, -0.1, 0.2), (-0.3, 0.1, 0.5, -0.4), (0.1, 0.2, -0.2, 0.3))
_YH = ((0.7, -0.4, 0.2, 0.5), (-0.1, 0.6, -0.3, 0.8))
_X = ((1.0, 0.0, -1.0), (0.5, 2.0, 0.0), (-1.0, 1.0, 1.0))
_Y = ((1.0, 0.0), (0.0, 1.0), (0.3, 0.7))
_LEVELS = ("x", "z", "h", "o", r"\hat y", "J")
"""Variables of a step, from the bottom up."""
_WEIGHTS = {"z": "$W_{hx}$", "h": r"$\psi$", "o": "$W_{yh}$", r"\hat y": "softmax"}
"""Labels of the arrows that lead to a variable from the one below it."""
_DIGITS = "₀₁₂₃₄₅"
_STATE = _LEVELS.index("h")
Gradients: TypeAlias = dict[str, Tensor]
"""Gradients of each step's loss J_t by outputs, states and W_hh, and that of J, by name."""
_OUTPUTS, _STATES, _USES, _WHOLE = "∂J_t/∂o_t", "∂J_t/∂h_i", "∂J_t/∂W_hh", "∂J/∂W_hh"
Radius: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Radii: TypeAlias = Annotated[tuple[Radius, ...], Meta(min_length=1, max_length=6)]
Stretch: TypeAlias = Annotated[float, Meta(gt=0, le=10)]
INFINITE = 124
"""Steps after which a gradient in float32 is infinite, while the loss is finite."""


@study()
def backpropagation_through_time(
    w_hx: Annotated[Rows, Meta(min_length=1, max_length=5)] = _HX,
    w_hh: Annotated[Rows, Meta(min_length=1, max_length=5)] = _HH,
    w_yh: Annotated[Rows, Meta(min_length=1, max_length=5)] = _YH,
    x: Annotated[Rows, Meta(min_length=1, max_length=4)] = _X,
    y: Annotated[Rows, Meta(min_length=1, max_length=4)] = _Y,
    activation: Activation = "identity",
) -> EvidenceParts:
    r"""How does the gradient of each step's loss propagate through a recurrent network?

    If y_t sums to 1 and there is no activation, ∂J_t/∂o_t = ŷ_t − y_t. It reaches h_t through
    W_yhᵀ, and earlier states through one factor W_hhᵀ per step. The gradient of W_hh is a sum of
    outer products with the preceding states.

    $$ \frac{\partial J_t}{\partial h_i} = (W_{hh}^\top)^{t-i} W_{yh}^\top (\hat y_t - y_t) \;\; (i
    \le t), \quad \frac{\partial J}{\partial W_{hh}} = \sum_t \sum_{i \le t} \frac{\partial
    J_t}{\partial h_i} h_{i-1}^\top $$

    The last measurements are errors for labels that don't sum to 1, and for another h₀.

    Figure. The computation graph. In each step, arrows lead from x to z, to h, to o, to ŷ and to
    the loss of that step. A colored arrow leads from h to the z of the next step, with W_hh. The
    losses add up to J. Gradients flow against the arrows. Shapes: x has {d_in} entries, z and h
    {d}, o, ŷ and y {d_out}; W_hx is {d}×{d_in}, W_hh {d}×{d}, W_yh {d_out}×{d}.

    Args:
        w_hx: rows of W_hx
        w_hh: rows of W_hh
        w_yh: rows of W_yh
        x: inputs, one per step
        y: labels, one-hot or soft
        activation: activation of the states
    """
    hx = matrix(_WHERE + "w_hx", w_hx)
    d, d_in = hx.shape
    yh, hh = matrix(_WHERE + "w_yh", w_yh, width=d), matrix(_WHERE + "w_hh", w_hh, d, d)
    network = Network(hx, hh, yh, _ACTIVATIONS[activation], h_0=hx.new_zeros(d))
    inputs = matrix(_WHERE + "x", x, width=d_in)
    labels = matrix(_WHERE + "y", y, len(x), len(yh))
    formula = by_formula(network, inputs, labels)
    yield from _differences(network, inputs, labels)
    yield from _errors_without_assumptions(network, inputs, labels)
    steps, rows = len(x), []
    for t in range(steps):
        now = t + 1
        rows.append((f"∂J{now}/∂o{now}", f"ŷ{now} − y{now}", _shown(formula[_OUTPUTS][t])))
        for i in range(t + 1):
            way = ("W_hhᵀ " * (t - i) if t - i < 3 else f"(W_hhᵀ)^{t - i} ") + "W_yhᵀ"
            state = _shown(formula[_STATES][t, i])
            rows.append((f"∂J{now}/∂h{i + 1}", f"{way} g_o{now}", state))
        uses = " + ".join(f"g_h{i + 1} h{i}ᵀ" for i in range(1, t + 1)) or "g_h1 h0ᵀ = 0"
        rows.append((f"∂J{now}/∂W_hh", uses, _shown(formula[_USES][t])))
    whole = " + ".join(f"∂J{t + 1}/∂W_hh" for t in range(steps))
    rows.append((_WHOLE, whole, _shown(formula[_WHOLE])))
    yield table(["gradient", "formula", "value"], rows)
    yield computation_graph(steps, d_in, d, len(yh))


@dataclass(frozen=True)
class Network:
    """h_t = ψ(W_hh h_{t−1} + W_hx x_t), o_t = W_yh h_t."""

    w_hx: Float[Tensor, "d d_in"]
    w_hh: Float[Tensor, "d d"]
    w_yh: Float[Tensor, "out d"]
    activation: Activate
    h_0: Float[Tensor, " d"]

    def states(self, x: Inputs) -> list[Float[Tensor, " d"]]:
        """Return h₀, h₁, …, each computed from the previous one."""
        states = [self.h_0]
        for row in x:
            states.append(self.activation(self.w_hh @ states[-1] + self.w_hx @ row))
        return states


def by_formula(network: Network, x: Inputs, y: Labels) -> Gradients:
    """Return the gradients by the derived formulas."""
    h = torch.stack(network.states(x))
    outputs = (h[1:] @ network.w_yh.T).softmax(-1) - y
    states = x.new_zeros(len(x), len(x), h.shape[1])
    for t, gradient in enumerate(outputs):
        states[t, t] = network.w_yh.T @ gradient
        for i in reversed(range(t)):
            states[t, i] = network.w_hh.T @ states[t, i + 1]
    # The state before h_i, which is in row i of h: h₀ is row 0.
    uses = torch.einsum("tia,ib->tab", states, h[:-1])
    return {_OUTPUTS: outputs, _STATES: states, _USES: uses, _WHOLE: uses.sum(0)}


def by_autograd(network: Network, x: Inputs, y: Labels) -> Gradients:
    """Return the gradients by automatic differentiation."""
    w_hh = network.w_hh.clone().requires_grad_()
    states = replace(network, w_hh=w_hh).states(x)[1:]
    outputs = torch.stack(states) @ network.w_yh.T
    losses, places = F.cross_entropy(outputs, y, reduction="none"), [outputs, *states, w_hh]
    each = torch.eye(len(x), dtype=x.dtype)  # a row for the loss of each step
    found = torch.autograd.grad(losses, places, each, is_grads_batched=True)
    by_output, states_by_step = found[0].sum(1), torch.stack(found[1:-1], 1)
    uses = found[-1]
    return {_OUTPUTS: by_output, _STATES: states_by_step, _USES: uses, _WHOLE: uses.sum(0)}


def by_differences(network: Network, x: Inputs, y: Labels) -> Float[Tensor, "d d"]:
    """Return ∂J/∂W_hh by central differences."""
    w_hh = network.w_hh.clone()
    changed = replace(network, w_hh=w_hh)

    def loss() -> Tensor:
        outputs = torch.stack(changed.states(x)[1:]) @ network.w_yh.T
        return F.cross_entropy(outputs, y, reduction="sum")

    return central_differences(loss, w_hh.view(-1), step=1e-7).view_as(w_hh)


def _differences(network: Network, x: Inputs, y: Labels) -> Measurements:
    """Yield the largest differences; tolerances are relative to the largest gradient."""
    formula, measured = by_formula(network, x, y), by_autograd(network, x, y)
    scale = max(1.0, largest(measured[_USES]), largest(measured[_STATES]))
    for name, found in measured.items():
        error = largest(formula[name] - found)
        yield at_most(f"{name}: formula and autograd, largest difference", error, 1e-12 * scale)
    later = measured[_STATES].movedim(-1, 0).triu(diagonal=1)
    yield equal("∂J_t/∂h_i where i > t, largest", largest(later), 0)
    error = largest(formula[_WHOLE] - by_differences(network, x, y))
    name = f"{_WHOLE}: formula and finite differences, largest difference"
    yield at_most(name, error, 1e-5 * scale)


def _errors_without_assumptions(network: Network, x: Inputs, y: Labels) -> Measurements:
    """Yield errors of the formulas if labels sum to 2 or h₀ = 1, with their predictions."""
    wrong, right = (by(network, x, 2 * y)[_OUTPUTS] for by in (by_formula, by_autograd))
    probabilities = largest(by_formula(network, x, y)[_OUTPUTS] + y)
    name = f"{_OUTPUTS}: error of ŷ_t − y_t if labels sum to 2, largest"
    yield equal(name, largest(right - wrong), probabilities, within=1e-12)
    begun = replace(network, h_0=torch.ones_like(network.h_0))
    formula, measured = by_formula(begun, x, y), by_autograd(begun, x, y)
    first = torch.outer(formula[_STATES][:, 0].sum(0), begun.h_0)
    without = largest(measured[_WHOLE] - (formula[_WHOLE] - first))
    name = f"{_WHOLE}: error of the sum without g_h1 h0ᵀ if h₀ = 1, largest"
    rounding = 1e-12 * max(1.0, largest(formula[_USES]))
    yield equal(name, without, largest(first), within=rounding)


def _shown(values: Tensor) -> str:
    """Return a vector in brackets, or a matrix with rows separated by semicolons."""
    if values.ndim == 2:
        return "[" + "; ".join(_shown(row).strip("[]") for row in values) + "]"
    return vector_text(values, ".3f")


def computation_graph(steps: int, d_in: int, d: int, d_out: int) -> Drawing:
    """Return the graph, unrolled over at most five steps, for states of width d."""
    nodes = [Node(-1.2, _STATE, "$h$₀"), Node(steps - 1, len(_LEVELS), "$J$")]
    arrows: list[Arrow] = []
    before = 0
    for t in range(steps):
        first = len(nodes)
        nodes += [Node(2 * t, level, f"${x}${_DIGITS[t + 1]}") for level, x in enumerate(_LEVELS)]
        nodes.append(Node(2 * t + 0.75, len(_LEVELS) - 1, f"$y${_DIGITS[t + 1]}"))
        arrows += [
            Arrow(start=below, end=below + 1, label=_WEIGHTS.get(x, ""))
            for below, x in enumerate(_LEVELS[1:], first)
        ]
        loss = first + len(_LEVELS) - 1
        arrows += [Arrow(start=loss + 1, end=loss), Arrow(start=loss, end=1)]
        arrows.append(Arrow(start=before, end=first + 1, label="$W_{hh}$", color=1))
        before = first + _STATE
    return figure(Graph(nodes=nodes, arrows=arrows), d_in=d_in, d=d, d_out=d_out)


@study()
def vanishing_and_exploding(
    radii: Radii = (0.0, 0.5, 0.9, 1.1, 1.5),
    stretches: Annotated[tuple[Stretch, ...], Meta(min_length=1, max_length=6)] = (2.0, 5.0, 10.0),
    steps: Annotated[int, Meta(ge=2, le=300)] = 200,
) -> EvidenceParts:
    r"""When do gradients vanish or explode, and where does NaN come from?

    In the long run, the spectral radius of W_hh decides, not its largest singular value: below 1
    the gradient vanishes, above 1 it explodes. Exploding gradients lead to NaN, vanishing ones
    don't.

    $$ \frac{\partial h_T}{\partial h_0} = W_{hh}^T, \quad \rho^T \le \left\| W_{hh}^T \right\| \le
    \sigma^T, \quad \left\| W_{hh}^T \right\|^{1/T} \to \rho $$

    The largest singular value bounds the growth in one step (Pascanu et al., 2013, §2.1).

    Figure. Norm of the gradient against steps. Lines: formula; dots: measured; dotted: 1. With σ =
    {high:g} all gradients grow at first; for spectral radii below 1 they fall from some step on,
    for radii above 1 they keep growing.

    Args:
        radii: spectral radii ρ
        stretches: largest singular values σ (at least ρ)
        steps: number of steps, T
    """
    measured = {
        radius: [gradient_norm(transition(radius, one), steps) for one in stretches]
        for radius in radii
    }
    name = f"‖∂h_T/∂h₀‖, T = {steps}"
    for radius, norms in measured.items():
        if radius < 1:
            yield at_most(f"{name}, ρ = {radius:g}: largest over σ", max(norms), 1e-3)
        elif radius > 1:
            yield at_least(f"{name}, ρ = {radius:g}: smallest over σ", min(norms), 1e3)
    yield from overflow()
    yield figure(_over_steps(radii, max(stretches), steps), high=max(stretches))


def _over_steps(radii: Radii, stretch: float, steps: int) -> Chart:
    places, formulas, measured = range(1, steps + 1), {}, {}
    for radius in radii:
        w, name = transition(radius, stretch), rf"$\rho$ = {radius:g}"
        # NaN isn't drawn; a logarithmic axis has no 0.
        formulas[name] = lambda t, radius=radius: predicted(radius, stretch, t) or nan
        measured[name] = {t: gradient_norm(w, t) or nan for t in places[:: max(steps // 4, 1)]}
    axes: dict[str, Any] = {"y": "norm of the gradient", "y_scale": "log", "y_limits": (1e-9, 1e13)}
    return formula_chart(places, formulas, measured, Line(y=1), x="steps back", **axes)


def transition(radius: float, stretch: float) -> Float64[Tensor, "2 2"]:
    """Return [[ρ, c], [0, ρ]] with largest singular value σ, or ρ if that is larger.

    The product of both singular values is ρ², and the sum of their squares is 2ρ² + c².
    """
    singular = max(radius, stretch)
    c = singular - radius**2 / singular
    return torch.tensor([[radius, c], [0.0, radius]], dtype=torch.float64)


def gradient_norm(w_hh: Float[Tensor, "d d"], steps: int) -> float:
    """Return ‖∂h_T/∂h₀‖ by autograd."""
    start = torch.zeros_like(w_hh, requires_grad=True)
    state = start
    for _ in range(steps):
        state = state @ w_hh.T
    # Row i of the batch gives the gradient of entry i.
    (gradients,) = torch.autograd.grad(state.diagonal().sum(), start)
    return float(torch.linalg.matrix_norm(gradients, 2))


def predicted(radius: float, stretch: float, steps: int) -> float:
    """Return ‖∂h_T/∂h₀‖ from W^T = [[ρ^T, T·ρ^(T−1)·c], [0, ρ^T]]."""
    c = float(transition(radius, stretch)[0, 1])
    a, b = radius**steps, steps * radius ** (steps - 1) * c
    return float((b + (b**2 + 4 * a**2) ** 0.5) / 2)


def overflow() -> Measurements:
    """Yield measurements of h_t = w·h_(t−1) from h₁ = 1, with J = h_T = w^(T−1).

    In float32. ∂J/∂w = (T−1)·w^(T−2), which is infinite at w = 2 and T = 124, before J is.
    """
    network, loss = backward(2.0, INFINITE)
    case = f"w = 2, T = {INFINITE}"
    yield equal(f"{case}: log₂ of the loss", log2(loss), INFINITE - 1)
    yield equal(f"{case}: infinite gradients", network["w"].grad.isinf(), 1)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    yield equal(f"{case}: NaN gradients, clipped by torch", network["w"].grad.isnan(), 1)
    torch.optim.SGD(network.parameters(), lr=1e-6).step()
    yield equal(f"{case}: the output is NaN after a step", last_state(network, 3).isnan(), 1)
    network, _ = backward(0.5, 160)
    yield equal("w = ½, T = 160: ∂J/∂w", network["w"].grad, 0)


def backward(w: float, steps: int) -> tuple[nn.ParameterDict, float]:
    """Return a network with the gradient of its last state, and this state, which is the loss."""
    network = nn.ParameterDict({"w": torch.tensor(w)})
    loss = last_state(network, steps)
    loss.backward()
    return network, loss.item()


def last_state(network: nn.ParameterDict, steps: int) -> Float32[Tensor, ""]:
    """Return h_T."""
    state = torch.ones(())
    for _ in range(steps - 1):
        state = network["w"] * state
    return state
