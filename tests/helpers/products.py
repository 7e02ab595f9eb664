"""The precisions of all matrix products that some code computes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PRODUCTS = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addbmm",
    "mv",
    "addmv",
    "dot",
    "linear",
    "convolution",
    "scaled_dot_product",
    "mkldnn_rnn_layer",
    "_thnn_fused",
)
"""Parts of the names of operators that multiply and add."""


@cache
def is_product(operator: Any) -> bool:
    """Whether an operator multiplies and adds."""
    name = str(operator)
    return any(part in name for part in PRODUCTS)


class _Precisions(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if is_product(func):
            tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            self.seen |= {x.dtype for x in tensors if x.is_floating_point()}
        return func(*args, **(kwargs or {}))


@contextmanager
def seen_products() -> Iterator[set[torch.dtype]]:
    """Collect the precisions of the operands of products."""
    with _Precisions() as mode:
        yield mode.seen
