"""The gradient of a recurrent network by formula, by autograd and by finite differences."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor

from regard.studies.figure import Arrow, Drawing, Graph, Node, figure
from regard.studies.finding import Measurement, Measurements, at_most, equal, table
from regard.studies.study import EvidenceParts, study
from regard.studies.tensors import central_differences, matrix, vector_text

Entry: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
Rows: TypeAlias = tuple[tuple[Entry, ...], ...]
Activation: TypeAlias = Literal["identity", "tanh"]
_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "identity": lambda z: z,
    "tanh": torch.tanh,
}
Inputs: TypeAlias = Float[Tensor, "steps d_in"]
Labels: TypeAlias = Float[Tensor, "steps out"]
_WHERE = "backpropagation-through-time: "
_STEP = 1e-7
"""Step of the finite differences."""
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

    Each gradient is computed by the formula and by autograd, that of W_hh also by finite
    differences; then the errors of the formulas for labels that don't sum to 1, and for another h₀.

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
    measured = by_autograd(network, inputs, labels)
    yield from _differences(formula, measured, by_differences(network, inputs, labels))
    yield from _errors_without_assumptions(network, inputs, labels)
    steps, rows = len(formula.outputs), []
    for t in range(steps):
        now = t + 1
        rows.append((f"∂J{now}/∂o{now}", f"ŷ{now} − y{now}", _shown(formula.outputs[t])))
        for i in range(t + 1):
            way = ("W_hhᵀ " * (t - i) if t - i < 3 else f"(W_hhᵀ)^{t - i} ") + "W_yhᵀ"
            rows.append((f"∂J{now}/∂h{i + 1}", f"{way} g_o{now}", _shown(formula.states[t, i])))
        uses = " + ".join(f"g_h{i + 1} h{i}ᵀ" for i in range(1, t + 1)) or "g_h1 h0ᵀ = 0"
        rows.append((f"∂J{now}/∂W_hh", uses, _shown(formula.weights[t])))
    whole = " + ".join(f"∂J{t + 1}/∂W_hh" for t in range(steps))
    rows.append(("∂J/∂W_hh", whole, _shown(formula.weights.sum(0))))
    yield table(["gradient", "formula", "value"], rows)
    yield computation_graph(len(inputs), d_in, d, len(yh))


@dataclass(frozen=True)
class Network:
    """h_t = ψ(W_hh h_{t−1} + W_hx x_t), o_t = W_yh h_t."""

    w_hx: Float[Tensor, "d d_in"]
    w_hh: Float[Tensor, "d d"]
    w_yh: Float[Tensor, "out d"]
    activation: Callable[[Tensor], Tensor]
    h_0: Float[Tensor, " d"]

    def states(self, x: Inputs) -> list[Float[Tensor, " d"]]:
        """Return h₀, h₁, …, each computed from the previous one."""
        states = [self.h_0]
        for row in x:
            states.append(self.activation(self.w_hh @ states[-1] + self.w_hx @ row))
        return states


class Gradients(NamedTuple):
    """Gradients of each step's loss, J_t."""

    outputs: Float[Tensor, "steps out"]
    """∂J_t/∂o_t."""
    states: Float[Tensor, "steps steps d"]
    """∂J_t/∂h_i."""
    weights: Float[Tensor, "steps d d"]
    """∂J_t/∂W_hh."""


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
    weights = torch.einsum("tia,ib->tab", states, h[:-1])
    return Gradients(outputs, states, weights)


def by_autograd(network: Network, x: Inputs, y: Labels) -> Gradients:
    """Return the gradients by automatic differentiation."""
    w_hh = network.w_hh.clone().requires_grad_()
    states = replace(network, w_hh=w_hh).states(x)[1:]
    outputs = [network.w_yh @ state for state in states]
    found = [
        torch.autograd.grad(
            F.cross_entropy(output, label),
            [output, *states, w_hh],
            retain_graph=True,
            materialize_grads=True,
        )
        for output, label in zip(outputs, y, strict=True)
    ]
    by_output, *by_states, by_weights = map(torch.stack, zip(*found, strict=True))
    return Gradients(by_output, torch.stack(by_states, 1), by_weights)


def by_differences(network: Network, x: Inputs, y: Labels) -> Float[Tensor, "d d"]:
    """Return ∂J/∂W_hh by central differences."""
    w_hh = network.w_hh.clone()
    changed = replace(network, w_hh=w_hh)

    def loss() -> Tensor:
        outputs = torch.stack(changed.states(x)[1:]) @ network.w_yh.T
        return F.cross_entropy(outputs, y, reduction="sum")

    return central_differences(loss, w_hh.view(-1), _STEP).view_as(w_hh)


def _differences(formula: Gradients, measured: Gradients, differences: Tensor) -> Measurements:
    """Yield the largest differences; tolerances are relative to the largest gradient."""
    scale = max(1.0, float(measured.weights.abs().max()), float(measured.states.abs().max()))
    later = torch.triu(torch.ones(measured.states.shape[:2], dtype=torch.bool), diagonal=1)

    def far(name: str, a: Tensor, b: Tensor, precision: float) -> Measurement:
        return at_most(f"{name}, largest difference", (a - b).abs().max(), precision * scale)

    whole = formula.weights.sum(0)
    yield far("∂J_t/∂o_t: formula and autograd", formula.outputs, measured.outputs, 1e-12)
    yield far("∂J_t/∂h_i: formula and autograd", formula.states, measured.states, 1e-12)
    yield equal("∂J_t/∂h_i where i > t, largest", measured.states[later].abs().sum(), 0)
    yield far("∂J_t/∂W_hh: formula and autograd", formula.weights, measured.weights, 1e-12)
    yield far("∂J/∂W_hh: formula and autograd", whole, measured.weights.sum(0), 1e-12)
    yield far("∂J/∂W_hh: formula and finite differences", whole, differences, 1e-5)


def _errors_without_assumptions(network: Network, x: Inputs, y: Labels) -> Measurements:
    """Yield errors of the formulas if labels sum to 2 or h₀ = 1, with their predictions."""
    doubled = by_autograd(network, x, 2 * y).outputs - by_formula(network, x, 2 * y).outputs
    probabilities = by_formula(network, x, y).outputs + y
    begun = replace(network, h_0=torch.ones_like(network.h_0))
    formula = by_formula(begun, x, y)
    first = torch.outer(formula.states[:, 0].sum(0), begun.h_0)
    without = by_autograd(begun, x, y).weights.sum(0) - (formula.weights.sum(0) - first)
    name = "∂J_t/∂o_t: error of ŷ_t − y_t if labels sum to 2, largest"
    yield equal(name, doubled.abs().max(), probabilities.abs().max(), within=1e-12)
    name = "∂J/∂W_hh: error of the sum without g_h1 h0ᵀ if h₀ = 1, largest"
    rounding = 1e-12 * max(1.0, float(formula.weights.abs().max()))
    yield equal(name, without.abs().max(), first.abs().max(), within=rounding)


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
            Arrow(start=first + level - 1, end=first + level, label=_WEIGHTS.get(x, ""))
            for level, x in enumerate(_LEVELS)
            if level
        ]
        loss = first + len(_LEVELS) - 1
        arrows += [Arrow(start=loss + 1, end=loss), Arrow(start=loss, end=1)]
        arrows.append(Arrow(start=before, end=first + 1, label="$W_{hh}$", color=1))
        before = first + _STATE
    return figure(Graph(nodes=nodes, arrows=arrows), d_in=d_in, d=d, d_out=d_out)
