"""A model whose weights are sharded over the processes of a training (FSDP2)."""

import copy
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from regard.data.batch import Batch
from regard.models.builders import Model
from regard.models.layers import Layer
from regard.models.tensors import saved_tensors
from regard.training.processes import Processes
from regard.training.replica import Replica, gathered


class FullySharded(Replica):
    """A part of each weight, its gradient and its optimizer state in each process (FSDP2)."""

    def __init__(self, model: Model, processes: Processes, *, compile: bool = False) -> None:
        self._whole = model
        super().__init__(copy.deepcopy(model), processes, compile=compile)
        device = next(model.parameters()).device
        mesh = init_device_mesh(device.type, (processes.size,))
        for layer in _layers(self.model):
            fully_shard(layer, mesh=mesh)
        fully_shard(self.loss, mesh=mesh)
        for module in self.loss.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def each(self, parts: Sequence[Batch]) -> Iterator[Batch]:
        for number, part in enumerate(parts, 1):
            cast("FSDPModule", self.loss).set_requires_gradient_sync(number == len(parts))
            yield part

    def collect(self) -> None:
        whole = saved_tensors(self._whole)
        with torch.no_grad():
            for name, tensor in saved_tensors(self.model).items():
                whole[name].copy_(gathered(tensor))

    def own_rows(self, tensor: Tensor) -> tuple[int, Tensor] | None:
        if not isinstance(tensor, DTensor):
            return super().own_rows(tensor)
        rows = tensor.to_local()
        before = self.processes.rank * -(-len(tensor) // self.processes.size)  # as torch.chunk
        return (before, rows) if len(rows) else None


def _layers(model: Model) -> list[Layer]:
    """Return the layers to gather one at a time; the rest is gathered for the whole forward pass.

    Layers with cross-attention belong to the rest, as parts of them run outside their forward pass,
    to encode the source.
    """
    layers = [module for module in model.modules() if isinstance(module, Layer)]
    return [layer for layer in layers if not hasattr(layer, "cross_attention")]
