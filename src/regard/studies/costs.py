"""What a call costs, measured: multiplications, seconds, bytes, and how they grow."""

import weakref
from collections.abc import Callable, Sequence
from math import prod
from timeit import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

Call = Callable[[], object]


def _fused(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Count a fused kernel's products."""
    return int(sdpa_flop_count(query, key, value))


def _outer(_: Any, rows: Any, columns: Any, *, out_shape: Any, **__: Any) -> int:
    """Count what is added as an outer product; other sums are no matrix products."""
    return 2 * prod(out_shape) if rows[-1] == columns[-2] == 1 else 0


TOKEN_PRODUCTS = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _fused,
    torch.ops.aten.addcmul: _outer,
    torch.ops.aten.addcmul_: _outer,
}
"""Products of a single token that the counter doesn't know."""


@torch.inference_mode()
def multiplications(call: Call) -> int:
    """Of all matrix products that run."""
    with FlopCounterMode(display=False, custom_mapping=TOKEN_PRODUCTS) as counter:
        call()
    return int(counter.get_total_flops()) // 2


@torch.inference_mode()
def seconds(call: Call, times: int = 3) -> float:
    """Of the fastest of several calls, after one that doesn't count."""
    return min(repeat(call, number=1, repeat=times + 1)[1:])


@torch.inference_mode()
def peak_bytes(call: Call) -> int:
    """The most that the tensors made in a call hold at one time, its result among them."""
    memory = _Memory()
    with memory:
        call()
    return memory.peak


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the best line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


class _Memory(TorchDispatchMode):
    """Adds up the storages of tensors as they are made, and takes them off as they die."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held: dict[int, int] = {}
        self.given: set[int] = set()
        self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.given |= {
            x.untyped_storage().data_ptr() for x in _tensors((args, kwargs))
        } - self.held.keys()
        made = func(*args, **(kwargs or {}))
        for tensor in _tensors(made):
            self._note(tensor.untyped_storage())
        self.peak = max(self.peak, sum(self.held.values()))
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        place = storage.data_ptr()
        if place in self.held or place in self.given:
            return
        self.held[place] = storage.nbytes()
        weakref.finalize(storage, self.held.pop, place, None)


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
