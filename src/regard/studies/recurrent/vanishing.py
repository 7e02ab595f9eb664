"""Conditions under which gradients vanish or explode, and the origin of NaN."""

from functools import partial
from math import log2, nan
from typing import Annotated, Any, TypeAlias

import torch
from jaxtyping import Float, Float32, Float64
from msgspec import Meta
from torch import Tensor, nn

from regard.errors import NonFiniteError
from regard.studies.figure import Line, figure, formula_chart
from regard.studies.finding import Measurements, at_least, at_most, equal, refused
from regard.studies.study import EvidenceParts, study
from regard.training.optimizers import clip_gradients

Radius: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Stretch: TypeAlias = Annotated[float, Meta(gt=0, le=10)]
LONG, TOO_LONG, INFINITE, VANISHED = 50, 100, 124, 160
"""Steps after which a gradient in float32 is large, has an infinite square, is infinite (while the
loss is finite), and is 0."""


@study()
def vanishing_and_exploding(
    radii: Annotated[tuple[Radius, ...], Meta(min_length=1, max_length=6)] = (
        0.0,
        0.5,
        0.9,
        1.1,
        1.5,
    ),
    stretches: Annotated[tuple[Stretch, ...], Meta(min_length=1, max_length=6)] = (2.0, 5.0, 10.0),
    steps: Annotated[int, Meta(ge=2, le=300)] = 200,
) -> EvidenceParts:
    r"""When do gradients vanish or explode, and where does NaN come from?

    In the long run, the spectral radius of W_hh decides, not its largest singular value: below 1
    the gradient vanishes, above 1 it explodes. Exploding gradients lead to NaN, vanishing ones
    don't. Clipping helps as long as the squared norm of the gradient is finite.

    $$ \frac{\partial h_T}{\partial h_0} = W_{hh}^T, \quad \rho^T \le \left\| W_{hh}^T \right\| \le
    \sigma^T, \quad \left\| W_{hh}^T \right\|^{1/T} \to \rho $$

    Gradients are measured for matrices of chosen spectral radius and largest singular value, which
    bounds the growth in one step (Pascanu et al., 2013, §2.1). Squares above 1.8·10¹⁹ are infinite
    in float32, and clipping then sets the gradient to 0. For an infinite gradient, clipping itself
    produces NaN; Regard stops with an error if the norm isn't finite.

    Figure. Norm of the gradient against steps, and after {steps} steps against the largest singular
    value. Lines: formula; dots: measured; dotted: 1. With σ = {high:g} all gradients grow at first;
    for spectral radii below 1 they fall from some step on, for radii above 1 they keep growing.
    After all steps the singular value hardly matters: the lines are almost level.

    Args:
        radii: spectral radii ρ
        stretches: largest singular values σ (at least ρ)
        steps: number of steps, T
    """
    measured = {
        radius: {one: gradient_norm(transition(radius, one), steps) for one in stretches}
        for radius in radii
    }
    pairs = [
        (norm, predicted(radius, one, steps))
        for radius, norms in measured.items()
        for one, norm in norms.items()
    ]
    errors = [abs(norm - expected) / (expected or 1.0) for norm, expected in pairs]
    name = f"‖∂h_T/∂h₀‖, T = {steps}"
    yield at_most(f"{name}: largest relative error of the formula", max(errors), 1e-9)
    for radius, norms in measured.items():
        if radius < 1:
            yield at_most(f"{name}, ρ = {radius:g}: largest over σ", max(norms.values()), 1e-3)
        elif radius > 1:
            yield at_least(f"{name}, ρ = {radius:g}: smallest over σ", min(norms.values()), 1e3)
    w, case = transition(0.0, 10.0), "[[0, 10], [0, 0]]"
    yield equal(f"{case}: ‖∂h₁/∂h₀‖", gradient_norm(w, 1), 10)
    yield equal(f"{case}: ‖∂h₂/∂h₀‖", gradient_norm(w, 2), 0)
    yield from overflow()
    labels = {radius: rf"$\rho$ = {radius:g}" for radius in measured}
    low, high, places = min(stretches), max(stretches), range(1, steps + 1)
    shown = places[:: max(steps // 4, 1)]
    axes: dict[str, Any] = {"y": "norm of the gradient", "y_scale": "log"}
    over_steps = formula_chart(
        places,
        {name: partial(_drawn, radius, high) for radius, name in labels.items()},
        {
            name: {t: gradient_norm(transition(radius, high), t) or nan for t in shown}
            for radius, name in labels.items()
        },
        Line(y=1),
        title=rf"$\sigma$ = {high:g}",
        x="steps back",
        y_limits=(1e-9, 1e13),
        **axes,
    )
    over_stretches = formula_chart(
        torch.linspace(low, max(high, low + 0.1), 30).tolist(),
        {name: partial(_drawn, radius, steps=steps) for radius, name in labels.items()},
        {},
        Line(y=1),
        title=f"after {steps} steps",
        x=r"largest singular value $\sigma$",
        y_limits=(1e-65, 1e45),
        **axes,
    )
    yield figure(over_steps, over_stretches, high=high)


def transition(radius: float, stretch: float) -> Float64[Tensor, "2 2"]:
    """Return [[ρ, c], [0, ρ]] with largest singular value σ, or ρ if that is larger.

    The product of both singular values is ρ², and the sum of their squares is 2ρ² + c².
    """
    largest = max(radius, stretch)
    c = largest - radius**2 / largest
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


def _drawn(radius: float, stretch: float, steps: int) -> float:
    """Return the formula's norm; NaN, which isn't drawn on a logarithmic axis, instead of 0."""
    return predicted(radius, stretch, steps) or nan


def overflow() -> Measurements:
    """Yield measurements of h_t = w·h_(t−1) + b from h₁ = 1, with b = 0 and J = h_T = w^(T−1).

    In float32. ∂J/∂w = (T−1)·w^(T−2), so with w = 2 it exceeds 2¹²⁸ at T = 124, before J does.
    """
    network, loss = backward(2.0, LONG)
    before = gradient(network)
    clip_gradients(network, 1.0, loss, 1)
    case = f"w = 2, T = {LONG}"
    yield equal(f"{case}: ∂J/∂w / 49·2⁴⁸", before[0].double() / (49 * 2.0**48), 1)
    clipped = gradient(network).norm()
    yield equal(f"{case}: norm of the gradient, clipped to 1", clipped, 1, within=1e-5)
    network, _ = backward(2.0, TOO_LONG)
    case = f"w = 2, T = {TOO_LONG}"
    yield equal(f"{case}: gradients that aren't finite", (~gradient(network).isfinite()).sum(), 0)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    yield equal(f"{case}: norm of the gradient, clipped by torch", gradient(network).norm(), 0)
    network, loss = backward(2.0, INFINITE)
    case = f"w = 2, T = {INFINITE}"
    yield equal(f"{case}: log₂ of the loss", log2(loss), INFINITE - 1)
    yield equal(f"{case}: infinite gradients", gradient(network).isinf().sum(), 1)
    clipping = refused(lambda: clip_gradients(network, 1.0, loss, 1), NonFiniteError)
    yield equal(f"{case}: clipping by Regard raises an error", clipping, 1)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    yield equal(f"{case}: NaN gradients, clipped by torch", gradient(network).isnan().sum(), 1)
    torch.optim.SGD(network.parameters(), lr=1e-6).step()
    yield equal(f"{case}: the output is NaN after a step", last_state(network, 3).isnan(), 1)
    network, _ = backward(0.5, VANISHED)
    case = f"w = ½, T = {VANISHED}"
    yield equal(f"{case}: ∂J/∂w", gradient(network)[0], 0)
    yield equal(f"{case}: gradients that aren't finite", (~gradient(network).isfinite()).sum(), 0)


def backward(w: float, steps: int) -> tuple[nn.ParameterDict, float]:
    """Return a network with the gradient of its last state, and this state, which is the loss."""
    network = nn.ParameterDict({"w": torch.tensor(w), "b": torch.tensor(0.0)})
    loss = last_state(network, steps)
    loss.backward()
    return network, loss.item()


def last_state(network: nn.ParameterDict, steps: int) -> Float32[Tensor, ""]:
    """Return h_T."""
    state = torch.ones(())
    for _ in range(steps - 1):
        state = network["w"] * state + network["b"]
    return state


def gradient(network: nn.ParameterDict) -> Float32[Tensor, "2"]:
    """Return the derivatives by w and b."""
    gradients = (network[name].grad for name in ("w", "b"))
    return torch.stack([one for one in gradients if one is not None]).clone()
