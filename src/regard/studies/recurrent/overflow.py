"""A gradient that grows beyond float32, and one that falls below it."""

from collections.abc import Iterable
from math import log2

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from regard.errors import NonFiniteError
from regard.studies.finding import Measurement, equal, refused
from regard.training.optimizers import clip_gradients

LONG, TOO_LONG, INFINITE, VANISHED = 50, 100, 124, 160
"""Steps whose gradient is long, so long that its square is infinite, itself infinite (though the
loss isn't), and 0."""


def overflow() -> Iterable[Measurement]:
    """h_t = w·h_(t−1) + b from h₁ = 1, with b = 0, and J = h_T = w^(T−1), in float32.

    So ∂J/∂w = (T−1)·w^(T−2): with w = 2 that passes 2¹²⁸ at T = 124, sooner than J does.
    """
    network, loss = backward(2.0, LONG)
    before = gradient(network)
    clip_gradients(network, 1.0, loss, 1)
    after = gradient(network)
    yield equal(f"w = 2, T = {LONG}: ∂J/∂w ÷ 49·2⁴⁸", before[0].double() / (49 * 2.0**48), 1)
    yield equal("length of the gradient, clipped to 1", after.norm(), 1, within=1e-5)
    # In float64, where squares of long gradients are finite.
    cosine = torch.cosine_similarity(before.double(), after.double(), dim=0, eps=0)
    yield equal("cosine between before and after", cosine, 1, within=1e-6)

    network, _ = backward(2.0, TOO_LONG)
    infinite = (~gradient(network).isfinite()).sum()
    yield equal(f"w = 2, T = {TOO_LONG}: entries of the gradient that aren't finite", infinite, 0)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    yield equal("its length, clipped by torch to 1", gradient(network).norm(), 0)

    network, loss = backward(2.0, INFINITE)
    yield equal(f"w = 2, T = {INFINITE}: log₂ of the loss", log2(loss), INFINITE - 1)
    yield equal("entries of the gradient that are infinite", gradient(network).isinf().sum(), 1)
    clipping = refused(lambda: clip_gradients(network, 1.0, loss, 1), NonFiniteError)
    yield equal("Regard's clipping refuses it", clipping, 1)
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    yield equal("entries that torch's clipping makes NaN", gradient(network).isnan().sum(), 1)
    torch.optim.SGD(network.parameters(), lr=1e-6).step()
    yield equal("after a step with it, the output is NaN", last_state(network, 3).isnan(), 1)

    vanished = gradient(backward(0.5, VANISHED)[0])
    yield equal(f"w = ½, T = {VANISHED}: ∂J/∂w", vanished[0], 0)
    yield equal("entries of the gradient that aren't finite", (~vanished.isfinite()).sum(), 0)


def backward(w: float, steps: int) -> tuple[nn.ParameterDict, float]:
    """A network with the gradient of its last state, and that state, which is the loss."""
    network = nn.ParameterDict({"w": torch.tensor(w), "b": torch.tensor(0.0)})
    loss = last_state(network, steps)
    loss.backward()
    return network, loss.item()


def last_state(network: nn.ParameterDict, steps: int) -> Float32[Tensor, ""]:
    """h_T."""
    state = torch.ones(())
    for _ in range(steps - 1):
        state = network["w"] * state + network["b"]
    return state


def gradient(network: nn.ParameterDict) -> Float32[Tensor, "2"]:
    """By w and by b."""
    gradients = (network[name].grad for name in ("w", "b"))
    return torch.stack([one for one in gradients if one is not None]).clone()
