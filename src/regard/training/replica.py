"""The model of a training in one of several processes: whole, or a part of each weight.

The loss of a step is the sum over the targets of the global batch, divided by their number, so the
gradients of processes are summed, not averaged.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.attention import Attention
from regard.data.batch import Batch
from regard.device import compiled
from regard.models.builders import CompiledBody, Embedder, Model
from regard.training.processes import Processes

ParallelKind = Literal["ddp", "fsdp"]


class Loss(nn.Module):
    """A model whose forward pass returns its loss, as the wrappers of torch expect.

    The gradient includes that of auxiliary losses of mechanisms, such as that of an indexer. The
    value excludes them, so that it stays comparable.
    """

    def __init__(self, model: Model, body: CompiledBody, processes: Processes) -> None:
        super().__init__()
        self.model, self.body, self.processes = model, body, processes
        attentions = (m for m in model.modules() if isinstance(m, Attention))
        self._mechanisms = [m for m in attentions if m.has_auxiliary_loss]

    def forward(self, batch: Batch) -> Tensor:
        """Return the loss in nats, summed over the targets of this process's share of a batch."""
        losses: list[Tensor] = []
        for mechanism in self._mechanisms:
            mechanism.auxiliary_losses = losses
        try:
            value = self._loss(batch)
        finally:
            for mechanism in self._mechanisms:
                mechanism.auxiliary_losses = None
        if not losses:
            return value
        # A batch without targets repeats rows of another process, without these losses.
        added = torch.stack(losses).sum() * bool(batch.n_targets)
        return value + (added - added.detach())

    def _loss(self, batch: Batch) -> Tensor:
        if self.processes.size == 1 or not batch.in_batch_negatives:
            return self.model.loss(batch, self.body)
        model, n = cast("Embedder", self.model), len(batch.labels)
        tensors = (*model.vectors(batch, self.body), batch.inputs["documents"].ids)
        questions, documents, ids = (self._gather(tensor)[:n] for tensor in tensors)
        return model.contrast(questions, documents, ids, batch.labels) / self.processes.size

    def _gather(self, rows: Shaped[Tensor, "own *dims"]) -> Shaped[Tensor, "all *dims"]:
        """Return the rows of all processes; gradients go back to the process of each row."""
        together: Tensor = _Gathered.apply(rows, self.processes)  # type: ignore[no-untyped-call]
        return together


class Replica:
    """The model of a training in one process."""

    def __init__(self, model: Model, processes: Processes, *, compile: bool = False) -> None:
        self.model, self.processes = model, processes
        body: CompiledBody = compiled(model.body, dynamic=True) if compile else model.body
        self.loss: nn.Module = Loss(model, body, processes)
        """Module whose call returns the loss in nats, summed over the targets of this process."""

    def each(self, parts: Sequence[Batch]) -> Iterator[Batch]:
        """Yield the parts of this process's share; run each backward before taking the next."""
        yield from parts

    def collect(self) -> None:
        """Copy the trained weights to the run's model; all processes must call this."""

    def own_rows(self, tensor: Tensor) -> tuple[int, Tensor] | None:
        """Return the rows of a tensor that this process saves, after the index of the first."""
        return (0, tensor) if self.processes.is_first else None


class _Gathered(torch.autograd.Function):
    """The rows of all processes, in the order of the batch: row i is of process i mod size."""

    @staticmethod
    def forward(
        ctx: Any, rows: Shaped[Tensor, "own *dims"], processes: Processes
    ) -> Shaped[Tensor, "all *dims"]:
        ctx.processes = processes
        parts = [torch.empty_like(rows) for _ in range(processes.size)]
        dist.all_gather(parts, rows.contiguous())
        return torch.stack(parts, 1).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient[ctx.processes.rank :: ctx.processes.size], None


class DataParallel(Replica):
    """A whole model in each process (Li et al., 2020)."""

    def __init__(self, model: Model, processes: Processes, *, compile: bool = False) -> None:
        super().__init__(model, processes, compile=compile)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch 2.13 deprecates an option of 2.11
            # Some objectives leave parameters unused. The search for them also keeps the buckets,
            # which determine the order of sums, the same after resuming.
            self._parallel = DistributedDataParallel(
                self.loss, broadcast_buffers=False, find_unused_parameters=True
            )
        self._parallel.register_comm_hook(None, _sum)
        self.loss = self._parallel

    def each(self, parts: Sequence[Batch]) -> Iterator[Batch]:
        for number, part in enumerate(parts, 1):
            # The last part sums the gradients of all processes in its backward pass.
            with nullcontext() if number == len(parts) else self._parallel.no_sync():
                yield part


def _sum(
    _: None,
    bucket: dist.GradBucket,  # type: ignore[name-defined] # torch hides it where it can't be used
) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    summed: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return summed


def share(batch: Batch, parts: int, processes: Processes) -> list[Batch]:
    """Return the part of a global batch that this process trains on, in `parts` parts.

    Rows of similar length go to the processes in turn, which balances their work. All have the same
    number of parts, as they communicate in each; a process without rows repeats one without loss.
    """
    rank, size = processes.rank, processes.size
    if size == 1:
        return batch.split(parts)
    if batch.in_batch_negatives:
        return [batch.every(rank, size)]
    return [
        part.take(torch.arange(rank, len(part.labels), size))
        if rank < len(part.labels)
        else part.take(torch.zeros(1, dtype=torch.long)).without_loss()
        for part in batch.split(parts)
    ]


def gathered(tensor: Tensor) -> Tensor:
    """Return a whole tensor, gathered from all processes, which must all call this."""
    collect = getattr(tensor, "full_tensor", None)
    return tensor if collect is None else collect()


def sharded_like(tensor: Tensor, whole: Tensor) -> Tensor:
    """Return this process's part of a whole tensor, if `tensor` is sharded; else all of it."""
    if not hasattr(tensor, "full_tensor"):
        return whole
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(tensor, DTensor)
    return distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)
