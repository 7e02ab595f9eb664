"""Floating-point operations, counted while they run.

Matrix products, convolutions, recurrent layers and fused attention count, mostly by the formulas of
torch's flop counter: two operations for a multiplication and an addition, masked scores too.
Everything else, such as norms and activations, has a small share and doesn't count. Neither do
custom kernels, such as those of flash-linear-attention on a GPU.
"""

from collections.abc import Callable, Mapping
from inspect import unwrap
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


def _onednn(rows: Any, inputs: Any, states: Any, *_: Any, **__: Any) -> int:
    return _recurrent(rows, [inputs, states])


def _cudnn(rows: Any, weights: Any, *_: Any, **__: Any) -> int:
    return _recurrent(rows, weights)


def _recurrent(rows: Any, weights: Any) -> int:
    """Return the operations of recurrent layers, whose matrices multiply each token once."""
    matrices = sum(weight.numel() for weight in weights if weight.ndim == 2)
    return int(2 * rows.numel() // rows.shape[-1] * matrices)


def _twice(forward: Formula) -> Formula:
    """Return the formula of a backward pass: gradients of rows and of weights."""
    return lambda *args, **kwargs: 2 * forward(*args, **kwargs)


_FUSED: Mapping[Any, Formula] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    torch.ops.aten.mkldnn_rnn_layer: _onednn,
    torch.ops.aten.mkldnn_rnn_layer_backward: _twice(_onednn),
    torch.ops.aten._cudnn_rnn: _cudnn,
    torch.ops.aten._cudnn_rnn_backward: _twice(_cudnn),
}
"""Kernels that torch's counter leaves out."""


class OperatorMode(TorchDispatchMode):
    """A mode whose `__torch_dispatch__` is called for each of torch's operators.

    Its base class wraps that method for torch's compiler, whose import takes a second.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # type: ignore[no-untyped-call]
        cls.__torch_dispatch__ = unwrap(cls.__torch_dispatch__)  # type: ignore[method-assign]


class OperationCounter(OperatorMode):
    """Counts the operations of this process within a `with` block, the backward pass included.

        with OperationCounter() as counter:
            model(input_ids).sum().backward()
        print(counter.total)

    `formulas` are for further operators.
    """

    supports_higher_order_operators = True

    def __init__(self, formulas: Mapping[Any, Formula] | None = None) -> None:
        super().__init__()
        self.total = 0
        self._formulas = {**flop_registry, **_FUSED, **(formulas or {})}

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
