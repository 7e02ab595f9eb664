"""Floating-point operations, counted while they run.

Matrix products, convolutions and fused attention count, by the formulas of torch's flop counter:
two operations for a multiplication and an addition, masked scores too. Everything else, such as
norms and activations, has a small share and doesn't count. Neither do custom kernels, such as those
of flash-linear-attention on a GPU.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

Formula: TypeAlias = Callable[..., int]
"""Operations, from the arguments of an operator and its result `out_val`."""


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    shapes = (tensor.shape for tensor in (grad, query, key, value))
    return int(sdpa_backward_flop_count(*shapes))


_ON_CPU: Mapping[Any, Formula] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""Kernels that torch's counter leaves out."""


class OperationCounter(TorchDispatchMode):
    """Counts the operations of this process within a `with` block, the backward pass included.

        with OperationCounter() as counter:
            model(input_ids).sum().backward()
        print(counter.total)

    `formulas` are for further operators.
    """

    supports_higher_order_operators = True

    def __init__(self, formulas: Mapping[Any, Formula] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._formulas = {**flop_registry, **_ON_CPU, **(formulas or {})}

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments, formula = kwargs or {}, self._formulas.get(_packet(func))
        if formula is None:
            # In inference mode, operators arrive before they are decomposed.
            whole = torch.is_inference_mode_enabled() and isinstance(func, OpOverload)
            return self._in_parts(func, args, arguments) if whole else func(*args, **arguments)
        out = func(*args, **arguments)
        self.total += int(formula(*args, **arguments, out_val=out))
        return out

    def _in_parts(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run the parts of an operator, or itself if it has none."""
        with self:
            out = func.decompose(*args, **kwargs)
        return func(*args, **kwargs) if out is NotImplemented else out


def _packet(operator: Any) -> Any:
    """Return the key of an operator's formula, which is the same for all its overloads."""
    return operator.overloadpacket if isinstance(operator, OpOverload) else operator
