"""Restrictions of exercises, on autograd or large tensors, and restricted calls of programs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from regard.operations import OperatorMode

_DERIVATIVES = {Tensor.backward, torch.autograd.grad, torch._make_dual}
_SWITCHES = {
    Tensor.requires_grad_,
    Tensor.requires_grad.__set__,  # type: ignore[attr-defined]
    torch._C._set_grad_enabled,
}
"""Functions that turn autograd on by their last argument; `torch.func` calls them, too."""
_CONVERSIONS = {
    Tensor.__array__,
    Tensor.__dlpack__,
    Tensor.__complex__,
    Tensor.__float__,
    Tensor.__index__,
    Tensor.__int__,
    Tensor.item,
    Tensor.numpy,
    Tensor.tolist,
    Tensor.untyped_storage,
}
_AUTOGRAD = "uses autograd, which this exercise excludes: compute the gradient by its formula"
_CONVERTED = "takes numbers out of a tensor, where entries can't be counted: use torch operations"


class Restrictions(msgspec.Struct, frozen=True):
    """Restrictions on a program."""

    autograd: bool = True
    """Whether it may use autograd."""
    count_entries: bool = False
    """Whether entries of tensors are counted, so that tensors must not be converted."""


class ExcludedError(Exception):
    """A program uses an operation that its exercise excludes."""


def call_restricted(call: Callable[[], Any], restrictions: Restrictions) -> tuple[Any, int]:
    """Return the result of a call, and the entries of the largest tensor that it makes.

    The entries are 0 if they aren't counted.

    Raises:
        ExcludedError: the call uses an excluded operation.
    """
    with ExitStack() as entered:
        if not restrictions.autograd:
            entered.enter_context(_no_autograd())
        if not restrictions.count_entries:  # the first use of a dispatch mode takes torch a second
            return call(), 0
        entered.enter_context(_Excluded(lambda func, *_: func in _CONVERSIONS, _CONVERTED))
        largest = entered.enter_context(_LargestTensor())
        result = call()
    return result, largest.entries


@contextmanager
def _no_autograd() -> Iterator[None]:
    """Raise if autograd is used, and record no operations for it."""
    try:
        with torch.no_grad(), _Excluded(_differentiates, _AUTOGRAD):
            yield
    except RuntimeError as error:
        # No mode intercepts `torch.autograd.backward`, but it finds nothing recorded.
        if "does not require grad" not in str(error):
            raise
        raise ExcludedError(_AUTOGRAD).with_traceback(error.__traceback__) from None


def _differentiates(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if func in _SWITCHES:
        return kwargs.get("requires_grad", args[-1]) is not False
    # No mode intercepts `torch.inference_mode(False)`, but later calls find autograd turned on.
    return func in _DERIVATIVES or torch.is_grad_enabled()


class _Excluded(TorchFunctionMode):
    """Raise an error before torch calls that a condition excludes."""

    def __init__(self, condition: Callable[..., bool], message: str) -> None:
        super().__init__()
        self.condition, self.message = condition, message

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self.condition(func, args, kwargs or {}):
            raise ExcludedError(self.message)
        return func(*args, **(kwargs or {}))


class _LargestTensor(OperatorMode):
    """Record the number of entries of the largest tensor that torch operations return."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        self.entries = max([self.entries, *sizes])
        return made
