"""The validation loss of a training, and its progress toward the best."""

from collections.abc import Sequence
from math import isfinite

import msgspec
import torch

from regard.data.batch import Batch
from regard.environment import ExecutionEnvironment
from regard.errors import NonFiniteError
from regard.models.builders import Model
from regard.training.checkpoint import Progress
from regard.training.loggers import Record
from regard.training.replica import Replica
from regard.training.step import best_parts


class Validation:
    """Measures the loss of a model on held-out batches, by all processes together."""

    def __init__(
        self,
        model: Model,
        replica: Replica,
        batches: Sequence[Batch],
        environment: ExecutionEnvironment,
    ) -> None:
        """`model` is whole, and has the weights of the `replica` after `collect`."""
        self._model, self._replica = model, replica
        self.batches, self._environment = batches, environment

    def measure(self, progress: Progress) -> tuple[Progress, Record]:
        """Return the progress with the best loss so far, and the loss for the metrics.

        Where nothing is held out, the last weights are the best.

        Raises:
            NonFiniteError: the loss is NaN or infinite.
        """
        self._replica.collect()
        if not self.batches:
            return msgspec.structs.replace(progress, best_step=progress.step), {}
        loss = self._loss()
        if not isfinite(loss):
            raise NonFiniteError(
                f"step {progress.step}: validation loss {loss:g}; the last checkpoint is good"
            )
        better = progress.best_loss is None or loss < progress.best_loss
        if better:
            changes = {"best_loss": loss, "best_step": progress.step, "checks_since_best": 0}
        else:
            changes = {"checks_since_best": progress.checks_since_best + 1}
        return msgspec.structs.replace(progress, **changes), {"validation_loss": loss}

    def _loss(self) -> float:
        """Return the mean loss per target, in nats; each process takes its turn of batches."""
        processes, environment = self._replica.processes, self._environment
        own = self.batches[processes.rank :: processes.size]
        parts = [part for batch in own for part in batch.split(best_parts(batch, environment))]
        (loss,) = processes.sum(sum_losses(self._model, parts, environment))
        return loss / sum(batch.n_targets for batch in self.batches)


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
