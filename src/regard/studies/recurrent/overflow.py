"""Overflow and underflow of a gradient in float32."""

from math import log2

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from regard.errors import NonFiniteError
from regard.studies.finding import Measurements, equal, refused
from regard.training.optimizers import clip_gradients

LONG, TOO_LONG, INFINITE, VANISHED = 50, 100, 124, 160
"""Steps after which the gradient is large, has an infinite square, is infinite (while the loss is
finite), and is 0."""


def overflow() -> Measurements:
    """Yield measurements of h_t = w·h_(t−1) + b from h₁ = 1, with b = 0 and J = h_T = w^(T−1).

    In float32. ∂J/∂w = (T−1)·w^(T−2), so with w = 2 it exceeds 2¹²⁸ at T = 124, before J does.
    """
    network, loss = backward(2.0, LONG)
    before = gradient(network)
    clip_gradients(network, 1.0, loss, 1)
    case = f"w = 2, T = {LONG}"
    yield equal(f"{case}: ∂J/∂w / 49·2⁴⁸", before[0].double() / (49 * 2.0**48), 1)
    yield equal(
        f"{case}: norm of the gradient, clipped to 1", gradient(network).norm(), 1, within=1e-5
    )

    network, _ = backward(2.0, TOO_LONG)
    case = f"w = 2, T = {TOO_LONG}"
    yield equal(f"{case}: gradients that aren't finite", not_finite(network), 0)
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
    yield equal(f"{case}: gradients that aren't finite", not_finite(network), 0)


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


def not_finite(network: nn.ParameterDict) -> int:
    """Return the number of derivatives that are infinite or NaN."""
    return int((~gradient(network).isfinite()).sum())
