"""The largest tensor that a computation makes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


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
