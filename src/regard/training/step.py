"""A step of training: its batch, gradients and update of the weights; validation loss.

A batch is a function of seed and step (`Sampler`), so making it earlier changes nothing: for a GPU,
it is made while the step before runs.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isfinite
from typing import Any

import msgspec
import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard import device
from regard.attention.kernel import normalizers_checked_together
from regard.data.batch import Batch, Sampler, move
from regard.dropout import Dropout, make_row_keys, release_rows, set_row_keys
from regard.environment import ExecutionEnvironment
from regard.errors import NonFiniteError
from regard.models.builders import Model
from regard.runs.recipe import TrainingConfig
from regard.training.checkpoint import Progress
from regard.training.loggers import Record
from regard.training.optimizers import Schedule, clip_gradients, set_rate
from regard.training.processes import Processes
from regard.training.replica import Replica, share


@dataclass(frozen=True, eq=False)
class StepBatch:
    """The batch of a step."""

    whole: Batch
    """The batch of all processes, which stays on the CPU."""
    parts: Sequence[Batch]
    """This process's share."""
    row_keys: Sequence[Int[Tensor, "modules rows 2"]]
    """The keys of each part's rows, for dropout."""

    def pin_memory(self) -> "StepBatch":
        """Copy to page-locked memory, from which copies to a GPU are asynchronous."""
        parts = [part.pin_memory() for part in self.parts]
        return replace(self, parts=parts, row_keys=[keys.pin_memory() for keys in self.row_keys])


@dataclass(eq=False)
class StepBatches:
    """The batches of a training's steps, each made on request."""

    sampler: Sampler
    processes: Processes
    environment: ExecutionEnvironment
    accumulation: int
    seed: int
    dropouts: Sequence[Dropout]

    def get(self, step: int) -> StepBatch:
        """Return the batch of a step."""
        batch = self.sampler.batch(step)
        n = best_parts(batch, self.environment, self.accumulation, self.processes.size)
        parts = share(batch, n, self.processes)
        numbers = [part.row_numbers for part in parts]
        keys = [make_row_keys(len(self.dropouts), self.seed, step, rows) for rows in numbers]
        return StepBatch(batch, parts, keys)

    def prepare(self, step: int) -> None:
        """Begin to make the batch of a step, if batches are prefetched."""

    def close(self) -> None:
        """Stop making batches."""


@dataclass(eq=False)
class PrefetchedBatches(StepBatches):
    """Batches that a thread makes ahead, for a GPU in pinned memory."""

    def __post_init__(self) -> None:
        self._on_gpu = self.environment.device.type == "cuda"
        begin = None  # otherwise a thread's current GPU is the first of the machine
        if self._on_gpu:
            begin = partial(torch.cuda.set_device, torch.cuda.current_device())
        self._thread = ThreadPoolExecutor(1, "batches", initializer=begin)
        self._ahead: dict[int, Future[StepBatch]] = {}

    def get(self, step: int) -> StepBatch:
        self.prepare(step)
        return self._ahead.pop(step).result()

    def prepare(self, step: int) -> None:
        if step not in self._ahead and step < self.sampler.steps:
            self._ahead[step] = self._thread.submit(self._make, step)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _make(self, step: int) -> StepBatch:
        made = super().get(step)
        return made.pin_memory() if self._on_gpu else made


def batches_kind(environment: ExecutionEnvironment) -> type[StepBatches]:
    """Return the class of batches: prefetching gains nothing where the CPU trains the model."""
    return StepBatches if environment.device.type == "cpu" else PrefetchedBatches


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """Result of a step."""

    step: int
    """Number of the step, from 1."""
    loss: float
    norm: float
    """Norm of the gradient, before clipping."""
    rate: float
    seconds: float
    batch: Batch
    """Batch of all processes."""
    is_interrupted: bool
    """Whether another process was interrupted, or this one before the gradients were summed."""
    operations: int | None = None
    """Floating-point operations, if they are counted."""

    def added_to(self, progress: Progress) -> Progress:
        """Return the progress after this step."""
        counts = (progress.operations, self.operations)
        return msgspec.structs.replace(
            progress,
            step=self.step,
            tokens=progress.tokens + self.batch.positions,
            operations=None if None in counts else sum(counts),
            seconds=progress.seconds + self.seconds,
            losses=(*progress.losses, self.loss),
        )

    def record(self) -> dict[str, Any]:
        """Return the metrics of this step alone."""
        return {"step": self.step, "gradient_norm": self.norm, "lr": self.rate}


@dataclass(frozen=True, eq=False)
class OptimizerStep:
    """Takes steps: the gradients of a batch, and an update of the weights by the optimizers."""

    replica: Replica
    optimizers: Sequence[torch.optim.Optimizer]
    schedule: Schedule
    batches: StepBatches
    environment: ExecutionEnvironment
    config: TrainingConfig

    @cached_property
    def _parameters(self) -> dict[str, nn.Parameter]:
        """Parameters by name; to list them takes longer than to clip the gradients of a few."""
        return dict(self.replica.model.named_parameters())

    def take(self, done: int, interrupted: bool) -> StepResult:
        """Take the step after `done` steps; `interrupted` is whether this process must stop.

        Raises:
            NonFiniteError: the loss or a gradient is NaN or infinite; the weights are as before.
        """
        started, number, model = time.perf_counter(), done + 1, self.replica.model
        batch = self.batches.get(done)
        set_rate(self.optimizers, self.schedule.factor(done))
        with normalizers_checked_together(model, f"step {number}: "):
            loss = accumulate_gradients(
                self.replica.loss,
                self._parts(batch, number),
                batch.whole.n_targets,
                self.environment,
            )
        loss, stopping = self.replica.processes.sum(loss, interrupted)
        norm = clip_gradients(self._parameters, self.config.max_grad_norm, loss, number)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return StepResult(
            step=number,
            loss=loss,
            norm=norm,
            rate=self.optimizers[-1].param_groups[0]["lr"],
            seconds=time.perf_counter() - started,
            batch=batch.whole,
            is_interrupted=stopping > 0,
        )

    def close(self) -> None:
        """Stop making batches, and forget the keys of their rows."""
        self.batches.close()
        release_rows(self.batches.dropouts)

    def _parts(self, batch: StepBatch, following: int) -> Iterator[Batch]:
        """Yield this process's share of a batch in parts, each with its own dropout."""
        device = self.environment.device
        for part, keys in zip(self.replica.each(batch.parts), batch.row_keys, strict=True):
            set_row_keys(self.batches.dropouts, move(keys, device))
            yield part
        # Prefetch after kernels are queued, to avoid contending for the GIL.
        self.batches.prepare(following)


def best_parts(
    batch: Batch, environment: ExecutionEnvironment, at_least: int = 1, processes: int = 1
) -> int:
    """Return the number of parts with which a process computes its share of a batch fastest."""
    if environment.device.type != "cpu":
        return at_least
    tokens = device.PART_BYTES // environment.dtype.itemsize
    return max(at_least, round(batch.positions / processes / tokens))


@torch.enable_grad()
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
    return sum(mean.item() for mean in means)  # after all parts: each read synchronizes a GPU


@dataclass(frozen=True, eq=False)
class Validation:
    """Measures the loss of a model on held-out batches, by all processes together."""

    model: Model
    """Whole, with the weights of the replica after its `collect`."""
    replica: Replica
    batches: Sequence[Batch]
    environment: ExecutionEnvironment

    def measure(self, progress: Progress) -> tuple[Progress, Record]:
        """Return the progress with the best loss so far, and the loss for the metrics.

        Where nothing is held out, the last weights are the best.

        Raises:
            NonFiniteError: the loss is NaN or infinite.
        """
        self.replica.collect()
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
        processes, environment = self.replica.processes, self.environment
        own = self.batches[processes.rank :: processes.size]
        parts = [part for batch in own for part in batch.split(best_parts(batch, environment))]
        (loss,) = processes.sum(sum_losses(self.model, parts, environment))
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
