"""The batch of each step, as one process trains on it; for a GPU, made while the step before runs.

A batch is a function of seed and step (`Sampler`), so making it earlier changes nothing.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batch import Batch, Sampler
from regard.device import ExecutionEnvironment
from regard.dropout import make_row_keys
from regard.training.losses import best_parts
from regard.training.processes import Processes
from regard.training.replica import share


@dataclass(frozen=True, eq=False)
class StepBatch:
    """The batch of a step."""

    whole: Batch
    """That of all processes, which stays on the CPU."""
    parts: Sequence[Batch]
    """This process's share."""
    row_keys: Sequence[Int[Tensor, "modules rows 2"]]
    """The keys of each part's rows, for dropout."""

    def pin_memory(self) -> "StepBatch":
        """Copy to page-locked memory, which a GPU reads while the CPU goes on."""
        parts = [part.pin_memory() for part in self.parts]
        return replace(self, parts=parts, row_keys=[keys.pin_memory() for keys in self.row_keys])


class StepBatches:
    """The batches of a training's steps, each made when it is asked for."""

    def __init__(
        self,
        sampler: Sampler,
        processes: Processes,
        environment: ExecutionEnvironment,
        *,
        accumulation: int,
        seed: int,
        dropouts: int,
    ) -> None:
        """`dropouts` is the number of modules that drop."""
        self._sampler, self._processes, self._environment = sampler, processes, environment
        self._accumulation, self._seed, self._dropouts = accumulation, seed, dropouts

    def get(self, step: int) -> StepBatch:
        """Return the batch of a step."""
        batch = self._sampler.batch(step)
        n = best_parts(batch, self._environment, self._accumulation, self._processes.size)
        parts = share(batch, n, self._processes)
        numbers = [part.row_numbers for part in parts]
        keys = [make_row_keys(self._dropouts, self._seed, step, rows) for rows in numbers]
        return StepBatch(batch, parts, keys)

    def prepare(self, step: int) -> None:
        """Begin to make the batch of a step, if it is to be made ahead."""

    def close(self) -> None:
        """Stop making batches."""


class PrefetchedBatches(StepBatches):
    """Batches that a thread makes ahead, for a GPU in pinned memory."""

    def __init__(
        self,
        sampler: Sampler,
        processes: Processes,
        environment: ExecutionEnvironment,
        **choices: int,
    ) -> None:
        super().__init__(sampler, processes, environment, **choices)
        self._on_gpu = environment.device.type == "cuda"
        begin = None  # otherwise a thread's current GPU is the first of the machine
        if self._on_gpu:
            begin = partial(torch.cuda.set_device, torch.cuda.current_device())
        self._thread = ThreadPoolExecutor(1, "batches", initializer=begin)
        self._ahead: dict[int, Future[StepBatch]] = {}

    def get(self, step: int) -> StepBatch:
        self.prepare(step)
        return self._ahead.pop(step).result()

    def prepare(self, step: int) -> None:
        if step not in self._ahead and step < self._sampler.steps:
            self._ahead[step] = self._thread.submit(self._make, step)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _make(self, step: int) -> StepBatch:
        made = super().get(step)
        return made.pin_memory() if self._on_gpu else made


def batches_kind(environment: ExecutionEnvironment) -> type[StepBatches]:
    """Return how batches are best made: beside a CPU's own work, a thread has nothing to gain."""
    return StepBatches if environment.device.type == "cpu" else PrefetchedBatches
