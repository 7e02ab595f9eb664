"""The loss of batches and its gradients, in parts of the size that a machine is fastest with."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from regard import device
from regard.data.batch import Batch
from regard.device import ExecutionEnvironment
from regard.models.builders import Model


def best_parts(
    batch: Batch, environment: ExecutionEnvironment, at_least: int = 1, processes: int = 1
) -> int:
    """Return the number of parts in which each process is fastest through its share of a batch."""
    if environment.device.type != "cpu":
        return at_least
    tokens = device.PART_BYTES // environment.dtype.itemsize
    return max(at_least, round(batch.positions / processes / tokens))


def accumulate_gradients(
    loss: Callable[[Batch], Tensor],
    parts: Iterable[Batch],
    n_targets: int,
    environment: ExecutionEnvironment,
) -> float:
    """Add up the gradients of a loss that is summed over targets, divided by their number.

    Returns:
        That mean loss, in nats.
    """
    means = []
    for part in parts:
        with environment.autocast():
            mean = loss(part.to(environment.device)) / n_targets
        mean.backward()
        means.append(mean.detach())
    return sum(mean.item() for mean in means)  # at the end, for a GPU stops for each question


def mean_loss(model: Model, batches: Sequence[Batch], environment: ExecutionEnvironment) -> float:
    """Return the mean loss per target in evaluation mode, in nats."""
    return sum_losses(model, batches, environment) / sum(batch.n_targets for batch in batches)


@torch.no_grad()
def sum_losses(model: Model, batches: Sequence[Batch], environment: ExecutionEnvironment) -> float:
    """Return the loss in evaluation mode, summed over the targets, in nats."""
    model.eval()
    with environment.autocast():
        losses = [model.loss(batch.to(environment.device)) for batch in batches]
    model.train()
    return sum(loss.item() for loss in losses)
