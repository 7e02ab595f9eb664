"""Measured costs of a call: multiplications, seconds, bytes, and their growth."""

import weakref
from collections.abc import Callable, Sequence
from timeit import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from regard.environment import thread_seconds
from regard.operations import OperationCounter, OperatorMode

Call = Callable[[], object]


def _outer(_: Any, rows: Tensor, columns: Tensor, *, out_val: Tensor, **__: Any) -> int:
    """Return the operations of an outer product; 0 for other sums, which are no matrix products."""
    return 2 * out_val.numel() if rows.shape[-1] == columns.shape[-2] == 1 else 0


OUTER_PRODUCTS = {torch.ops.aten.addcmul: _outer, torch.ops.aten.addcmul_: _outer}
"""Operators for single tokens that aren't counted elsewhere."""


@torch.inference_mode()
def multiplications(call: Call) -> int:
    """Return the number of multiplications in matrix products."""
    with OperationCounter(OUTER_PRODUCTS) as counter:
        call()
    return counter.total // 2


@torch.inference_mode()
def seconds(call: Call, times: int = 3) -> float:
    """Return the processor time of the fastest of several calls on one thread, after a warmup.

    On several threads, it would depend on other work on the machine.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return min(repeat(call, timer=thread_seconds, number=1, repeat=times + 1)[1:])
    finally:
        torch.set_num_threads(threads)


@torch.inference_mode()
def peak_bytes(call: Call) -> int:
    """Return the peak memory of tensors made in a call, including its result."""
    memory = _Memory()
    with memory:
        call()
    return memory.peak


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the exponent of a power law, by least squares on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class _Memory(OperatorMode):
    """Sum of the storages of living tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.given: set[int] = set()
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.given |= _storages((args, kwargs)).keys() - self.held.keys()
        made = func(*args, **(kwargs or {}))
        for place, storage in _storages(made).items():
            if place not in self.held and place not in self.given:
                self.held[place] = storage.nbytes()
                weakref.finalize(storage, self.held.pop, place, None)
        self.peak = max(self.peak, sum(self.held.values()))
        return made


def _storages(tree: object) -> dict[int, torch.UntypedStorage]:
    """Return the storages of tensors in nested containers, by address."""
    found = [x.untyped_storage() for x in tree_leaves(tree) if isinstance(x, Tensor)]
    return {storage.data_ptr(): storage for storage in found}
