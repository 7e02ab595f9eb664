"""A one-hot position that is read, and a learned one that is added, are the same."""

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float64
from torch import Tensor

from regard.positions import Learned, OneHot
from regard.studies.finding import Measurement, at_least, at_most, equal

PLACES, WIDTH, ROWS = 12, 6, 8
STEPS, RATE = 50, 0.5
"""Of gradient descent."""


def one_hot_is_learned(seed: int) -> Iterable[Measurement]:
    """The same regression by two models, in float64, from the same start.

    One has weights that read input and one-hot place side by side; the other has weights for the
    input alone, and adds a learned vector of the place. The last place never occurs.
    """
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Float64[Tensor, "..."]:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    places = torch.arange(PLACES - 1)
    x, target = drawn(ROWS, len(places), WIDTH), drawn(ROWS, len(places), WIDTH)
    start = drawn(WIDTH, WIDTH + PLACES)
    one_hot = OneHot(length=PLACES, d=PLACES)(places).double().expand(ROWS, -1, -1)
    both = start.clone().requires_grad_()
    alone = start[:, :WIDTH].clone().requires_grad_()
    learned = Learned(length=PLACES, d=WIDTH).double()
    with torch.no_grad():
        learned.vectors.copy_(start[:, WIDTH:].T)

    reading = descend(lambda: torch.cat([x, one_hot], -1) @ both.T, target, [both])
    adding = descend(lambda: x @ alone.T + learned(places), target, [alone, learned.vectors])
    before, columns = start[:, WIDTH:], both[:, WIDTH:].detach()
    apart = (columns.T - learned.vectors.detach()).abs().max()
    moved = (columns - before).norm(dim=0) / before.norm(dim=0)
    yield at_most(
        "one-hot read, learned added: losses apart", (reading - adding).abs().max(), 1e-12
    )
    yield at_most("columns and learned vectors apart", apart, 1e-12)
    yield at_least("columns moved, least (0 if they couldn't be learned)", moved[:-1].min(), 0.1)
    yield equal("column of the place that never occurs: moved", moved[-1], 0)


def descend(
    output: Callable[[], Tensor], target: Tensor, parameters: Sequence[Tensor]
) -> Float64[Tensor, " steps"]:
    """Gradient descent on the mean squared error; the loss before each step."""
    losses = []
    for _ in range(STEPS):
        loss = F.mse_loss(output(), target)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= RATE * gradient
        losses.append(loss.detach())
    return torch.stack(losses)
