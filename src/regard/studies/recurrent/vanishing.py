"""What makes gradients vanish or explode, and where NaN comes from."""

from collections.abc import Iterable
from math import nan
from typing import Annotated, TypeAlias

import torch
from jaxtyping import Float, Float64
from msgspec import Meta
from torch import Tensor

from regard.studies.figure import Chart, Line, Series, chart, figure, series
from regard.studies.finding import EvidenceParts, Measurement, at_least, at_most, equal
from regard.studies.recurrent.overflow import overflow
from regard.studies.study import study

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

    The spectral radius of W_hh decides in the long run, not its largest singular value: below 1 the
    gradient vanishes, above 1 it explodes. Only exploding gradients cause NaN, and clipping helps
    as long as the squared gradient is finite.

    $$ \frac{\partial h_T}{\partial h_0} = W_{hh}^T, \quad \rho^T \le \left\| W_{hh}^T \right\| \le
    \sigma^T, \quad \left\| W_{hh}^T \right\|^{1/T} \to \rho $$

    Going back through a step multiplies the gradient by W_hhᵀ. The largest singular value says
    how much one step can stretch a vector; the spectral radius, how much many steps stretch it, on
    average over them. A matrix may stretch what it then forgets: [[0, 10], [0, 0]] makes a vector
    ten times as long, and its square is 0. So σ < 1 is enough for vanishing, but σ > 1 doesn't make
    gradients explode (Pascanu et al., 2013, §2.1); for a while they may grow all the same.

    A vanishing gradient ends at 0, which does no harm but that nothing is learned. An exploding one
    passes the largest float32, 3.4·10³⁸, and is infinite from there on; the first 0·∞ or ∞ − ∞
    makes NaN of it, and one step of the optimizer carries that into the weights.

    Clipping keeps the direction of a long gradient. But its length is the root of a sum of squares,
    and those are infinite from 1.8·10¹⁹ on: the factor is then 1/∞ = 0, and the step is lost. Of an
    infinite gradient clipping itself makes NaN, for 0·∞ is NaN. So training has to look at the
    length first, and Regard's stops there.

    Figure. Length of the gradient against steps, and after {steps} steps against the largest
    singular value; lines: formula, dots: measured, dotted: 1. With σ = {high:g} all gradients grow
    at first; for spectral radii below 1 they fall from some step on, for those above 1 they rise
    for ever. After all steps the singular value hardly matters: the lines are almost level.

    Args:
        radii: spectral radii ρ
        stretches: largest singular values σ (at least ρ)
        steps: steps, T
    """
    measured = {
        (radius, stretch): length(transition(radius, stretch), steps)
        for radius in radii
        for stretch in stretches
    }
    yield from _against_formula(measured, steps)
    yield from _in_the_end(measured, radii)
    yield from _nilpotent()
    yield from overflow()
    low, high = min(stretches), max(stretches)
    grid = torch.linspace(low, max(high, low + 0.1), 30).tolist()
    places = range(1, steps + 1)
    shown = places[:: max(steps // 4, 1)]
    over_steps, over_stretches = list[Series](), list[Series]()
    for i, radius in enumerate(radii):
        norms = [predicted(radius, high, step) or nan for step in places]
        found = [length(transition(radius, high), step) or nan for step in shown]
        over_steps += [
            series(places, norms, f"ρ = {radius:g}", color=i),
            series(shown, found, style="dots", color=i),
        ]
        norms = [predicted(radius, one, steps) or nan for one in grid]
        over_stretches.append(series(grid, norms, f"ρ = {radius:g}"))
    yield figure(
        _chart(over_steps, f"σ = {high:g}", "steps back", (1e-9, 1e13)),
        _chart(over_stretches, f"after {steps} steps", "largest singular value σ", (1e-65, 1e45)),
        high=high,
    )


def transition(radius: float, stretch: float) -> Float64[Tensor, "2 2"]:
    """[[ρ, c], [0, ρ]], with the c that makes the largest singular value σ, or ρ if that is more.

    The product of both singular values is ρ², and the sum of their squares is 2ρ² + c².
    """
    largest = max(radius, stretch)
    c = largest - radius**2 / largest
    return torch.tensor([[radius, c], [0.0, radius]], dtype=torch.float64)


def length(w_hh: Float[Tensor, "d d"], steps: int) -> float:
    """‖∂h_T/∂h₀‖, the most by which the gradient grows on its way back, by autograd."""
    start = torch.zeros_like(w_hh, requires_grad=True)
    state = start
    for _ in range(steps):
        state = state @ w_hh.T
    # Row i of the batch gives the gradient of entry i.
    (gradients,) = torch.autograd.grad(state.diagonal().sum(), start)
    return float(torch.linalg.matrix_norm(gradients, 2))


def predicted(radius: float, stretch: float, steps: int) -> float:
    """The same from W^T = [[ρ^T, T·ρ^(T−1)·c], [0, ρ^T]]."""
    c = float(transition(radius, stretch)[0, 1])
    a, b = radius**steps, steps * radius ** (steps - 1) * c
    return float((b + (b**2 + 4 * a**2) ** 0.5) / 2)


def _against_formula(measured: Norms, steps: int) -> Iterable[Measurement]:
    pairs = [(found, predicted(*chosen, steps)) for chosen, found in measured.items()]
    off = [abs(found - expected) / (expected or 1.0) for found, expected in pairs]
    yield at_most(f"‖∂h/∂h₀‖ after {steps} steps: off the formula, relatively", max(off), 1e-9)
    # A power that underflows is 0, and so is the gradient.
    shares = [found / (max(chosen) ** steps or 1.0) for chosen, found in measured.items()]
    yield at_most("its share of σ^T, largest", max(shares), 1 + 1e-9)


def _in_the_end(measured: Norms, radii: tuple[float, ...]) -> Iterable[Measurement]:
    """A thousandth, or a thousandfold, whatever σ is."""
    for radius in radii:
        found = [norm for (own, _), norm in measured.items() if own == radius]
        if radius < 1:
            yield at_most(f"‖∂h_T/∂h₀‖ for ρ = {radius:g}, largest over σ", max(found), 1e-3)
        elif radius > 1:
            yield at_least(f"‖∂h_T/∂h₀‖ for ρ = {radius:g}, smallest over σ", min(found), 1e3)


def _nilpotent() -> Iterable[Measurement]:
    """[[0, 10], [0, 0]]."""
    w = transition(0.0, 10.0)
    yield equal("[[0, 10], [0, 0]]: σ", torch.linalg.matrix_norm(w, 2), 10)
    yield equal("its ρ", torch.linalg.eigvals(w).abs().max(), 0)
    yield equal("its ‖∂h₁/∂h₀‖", length(w, 1), 10)
    yield equal("its ‖∂h₂/∂h₀‖", length(w, 2), 0)


def _chart(curves: list[Series], title: str, x: str, limits: tuple[float, float]) -> Chart:
    y = "length of the gradient"
    return chart(*curves, Line(y=1), title=title, x=x, y=y, y_scale="log", y_limits=limits)
