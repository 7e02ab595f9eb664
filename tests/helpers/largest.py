"""Memory of a computation: its largest tensor, and what it keeps for gradients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.attention import Attention, Bias, Mask


class Largest(TorchDispatchMode):
    """How many bytes the largest new tensor takes; views of given ones don't count."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = {x.untyped_storage().data_ptr() for x in _tensors(args)}
        out = func(*args, **(kwargs or {}))
        for made in _tensors(out):
            storage = made.untyped_storage()
            if storage.data_ptr() not in given:
                self.bytes = max(self.bytes, storage.nbytes())
        return out


def _tensors(nested: Any) -> list[Tensor]:
    return [x for x in tree_leaves(nested) if isinstance(x, Tensor)]


def memory_used(
    attend: Attention, n: int, d: int, mask: Mask | None, bias: Bias | None = None
) -> tuple[int, int]:
    """Bytes of the largest tensor of attention and its gradients, and of what is kept for them.

    One head of n tokens of width d, in float32.
    """
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    inputs = [torch.randn(1, 1, n, d, requires_grad=True) for _ in range(3)]
    with Largest() as largest:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = attend(*inputs, mask=mask, bias=bias)
        torch.autograd.grad(out.sum(), inputs)
    return largest.bytes, sum(kept.values())
