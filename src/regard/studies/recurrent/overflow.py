"""A gradient that grows beyond float32, and one that falls below it."""

from collections.abc import Iterable
from math import log2

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from regard.errors import NonFiniteError
from regard.models.recurrent import LinearRNN
from regard.studies.finding import Measurement, equal
from regard.training.optimizers import clip_gradients

LONG, TOO_LONG, INFINITE, VANISHED = 50, 100, 124, 160
"""Steps whose gradient is long, so long that its square is infinite, itself infinite (though the
loss isn't), and 0."""


def overflow() -> Iterable[Measurement]:
    """h_t = w·h_(t−1) + x_t with x = 1, 0, 0, … and J = h_T = w^(T−1), in float32.

    So ∂J/∂w = (T−1)·w^(T−2): with w = 2 that passes 2¹²⁸ at T = 124, sooner than J does.
    """
    yield from _long()
    yield from _too_long()
    yield from _infinite()
    yield from _vanished()


def _long() -> Iterable[Measurement]:
    network = loss_of(2.0, LONG)
    before = gradient(network)
    clip_gradients(network, 1.0, network.loss, 1)
    after = gradient(network)
    yield equal(f"w = 2, T = {LONG}: ∂J/∂w ÷ 49·2⁴⁸", before[1].double() / (49 * 2.0**48), 1)
    yield equal("length of the gradient, clipped to 1", after.norm(), 1, within=1e-5)
    yield equal("cosine between before and after", cosine(before, after), 1, within=1e-6)


def _too_long() -> Iterable[Measurement]:
    network = loss_of(2.0, TOO_LONG)
    infinite = (~gradient(network).isfinite()).sum()
    yield equal(f"w = 2, T = {TOO_LONG}: entries of the gradient that aren't finite", infinite, 0)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    yield equal("its length, clipped by torch to 1", gradient(network).norm(), 0)


def _infinite() -> Iterable[Measurement]:
    network = loss_of(2.0, INFINITE)
    yield equal(f"w = 2, T = {INFINITE}: log₂ of the loss", log2(network.loss), INFINITE - 1)
    yield equal("entries of the gradient that are infinite", gradient(network).isinf().sum(), 1)
    yield equal("Regard's clipping refuses it", float(_is_refused(network)), 1)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    yield equal("entries that torch's clipping makes NaN", gradient(network).isnan().sum(), 1)
    yield equal("after a step with it, the output is NaN", float(_after_a_step(network)), 1)


def _vanished() -> Iterable[Measurement]:
    vanished = gradient(loss_of(0.5, VANISHED))
    yield equal(f"w = ½, T = {VANISHED}: ∂J/∂w", vanished[1], 0)
    yield equal("entries of the gradient that aren't finite", (~vanished.isfinite()).sum(), 0)


class Powers(LinearRNN):
    """A state that is multiplied by w at each step."""

    loss = 0.0


def loss_of(w: float, steps: int) -> Powers:
    """Such a network with the gradient of its last state."""
    network = Powers(1, 1)
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), (1.0, w, 0.0, 0.0), strict=True):
            parameter.fill_(value)
    state = last_state(network, steps)
    state.backward()
    network.loss = state.item()
    return network


def last_state(network: LinearRNN, steps: int) -> Float32[Tensor, ""]:
    """h_T for the inputs 1, 0, 0, …"""
    x = torch.zeros(1, steps, 1)
    x[0, 0] = 1
    last: Tensor = network(x, torch.zeros(1, 1, 1))[1]
    return last.squeeze()


def gradient(network: nn.Module) -> Float32[Tensor, " parameters"]:
    """Of all parameters: of the input's weight, of w, of both biases."""
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    return torch.cat([g.flatten() for g in gradients]).clone()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Between two directions; in float64, where squares of long gradients are finite."""
    return torch.cosine_similarity(a.double(), b.double(), dim=0, eps=0)


def _is_refused(network: Powers) -> bool:
    try:
        clip_gradients(network, 1.0, network.loss, 1)
    except NonFiniteError:
        return True
    return False


def _after_a_step(network: Powers) -> bool:
    torch.optim.SGD(network.parameters(), lr=1e-6).step()
    return bool(last_state(network, 3).isnan())
