"""Stand-ins for a GPU on a machine without one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class OnGPU(Tensor):
    """A tensor in main memory that says that it is on a GPU, as do all that are made of it."""

    is_cuda = True
    is_cpu = False


def on_gpu(x: Tensor) -> Tensor:
    """Return the tensor as one on a GPU."""
    return x.as_subclass(OnGPU)


@contextmanager
def counted_stops() -> Iterator[list[str]]:
    """Collect the operations of the with block for which a GPU stops: Python gets their numbers."""
    stops: list[str] = []
    to_list = Tensor.tolist

    def counted(x: Tensor) -> Any:
        stops.append("tolist")
        with torch._C.DisableTorchFunctionSubclass():
            return to_list(x)

    with patch.object(Tensor, "tolist", counted), _Stops(stops):
        yield stops


class _Stops(TorchDispatchMode):
    """Note the operations whose result, or its shape, depends on numbers on a GPU."""

    kinds = frozenset({"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select"})

    def __init__(self, stops: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stops = stops

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if (name := str(function).split(".")[1]) in self.kinds:
            self.stops.append(name)
        return function(*args, **(kwargs or {}))
