"""Conditions under which gradients vanish or explode, and the origin of NaN."""

from collections.abc import Sequence
from math import nan
from typing import Annotated, TypeAlias

import torch
from jaxtyping import Float, Float64
from msgspec import Meta
from torch import Tensor

from regard.studies.figure import Chart, Line, Series, chart, figure, series
from regard.studies.finding import at_least, at_most, equal
from regard.studies.recurrent.overflow import overflow
from regard.studies.study import EvidenceParts, study

Norms: TypeAlias = dict[tuple[float, float], float]
"""‖∂h_T/∂h₀‖ by spectral radius and largest singular value."""
Radius: TypeAlias = Annotated[float, Meta(ge=0, le=2)]
Radii: TypeAlias = Annotated[tuple[Radius, ...], Meta(min_length=1, max_length=6)]
Stretch: TypeAlias = Annotated[float, Meta(gt=0, le=10)]


@study()
def vanishing_and_exploding(
    radii: Radii = (0.0, 0.5, 0.9, 1.1, 1.5),
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
    bounds the growth in one step (Pascanu et al., 2013, §2.1). The norm for clipping is the root of
    a sum of squares, and these are infinite from 1.8·10¹⁹ on: the factor is then 1/∞ = 0, and the
    step is lost. For an infinite gradient, clipping itself produces NaN; Regard stops with an error
    if the norm isn't finite.

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
        (radius, stretch): gradient_norm(transition(radius, stretch), steps)
        for radius in radii
        for stretch in stretches
    }
    pairs = [(norm, predicted(*chosen, steps)) for chosen, norm in measured.items()]
    errors = [abs(norm - expected) / (expected or 1.0) for norm, expected in pairs]
    name = f"‖∂h_T/∂h₀‖, T = {steps}"
    yield at_most(f"{name}: largest relative error of the formula", max(errors), 1e-9)
    for radius in dict.fromkeys(radius for radius, _ in measured):
        found = [norm for (own, _), norm in measured.items() if own == radius]
        if radius < 1:
            yield at_most(f"{name}, ρ = {radius:g}: largest over σ", max(found), 1e-3)
        elif radius > 1:
            yield at_least(f"{name}, ρ = {radius:g}: smallest over σ", min(found), 1e3)
    w, case = transition(0.0, 10.0), "[[0, 10], [0, 0]]"
    yield equal(f"{case}: ‖∂h₁/∂h₀‖", gradient_norm(w, 1), 10)
    yield equal(f"{case}: ‖∂h₂/∂h₀‖", gradient_norm(w, 2), 0)
    yield from overflow()
    panels = _over_steps(radii, max(stretches), steps), _over_stretches(radii, stretches, steps)
    yield figure(*panels, high=max(stretches))


def _over_steps(radii: Radii, stretch: float, steps: int) -> Chart:
    places, curves = range(1, steps + 1), list[Series]()
    shown = places[:: max(steps // 4, 1)]
    for i, radius in enumerate(radii):
        norms = [predicted(radius, stretch, step) or nan for step in places]
        found = [gradient_norm(transition(radius, stretch), step) or nan for step in shown]
        curves += [
            series(places, norms, rf"$\rho$ = {radius:g}", color=i),
            series(shown, found, style="dots", color=i),
        ]
    return _chart(curves, rf"$\sigma$ = {stretch:g}", "steps back", (1e-9, 1e13))


def _over_stretches(radii: Radii, stretches: Sequence[float], steps: int) -> Chart:
    low, high = min(stretches), max(stretches)
    grid = torch.linspace(low, max(high, low + 0.1), 30).tolist()
    curves = [
        series(
            grid, [predicted(radius, one, steps) or nan for one in grid], rf"$\rho$ = {radius:g}"
        )
        for radius in radii
    ]
    return _chart(curves, f"after {steps} steps", r"largest singular value $\sigma$", (1e-65, 1e45))


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


def _chart(curves: list[Series], title: str, x: str, limits: tuple[float, float]) -> Chart:
    y = "norm of the gradient"
    return chart(*curves, Line(y=1), title=title, x=x, y=y, y_scale="log", y_limits=limits)
