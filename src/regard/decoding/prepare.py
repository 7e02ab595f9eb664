"""Copies of models for decoding, which compute the same with less work per token.

At one token a step, the matrix products are only part of the time. A call of an `nn.Module` checks
hooks first; its parameters and modules are found after failed look-ups in its class and its
instance; under autocast, each step converts all weights again; and GELU of few numbers has a faster
kernel.
docs/speed.md states the gain of each.
"""

from dataclasses import replace
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from regard.attention.base import product_dtype
from regard.attention.norm import RMSNorm
from regard.device import FEW_ACTIVATIONS
from regard.dropout import Dropout
from regard.models.builders import ConditionedModel
from regard.models.layers import FeedForward
from regard.positions.rotary import Rotary

T = TypeVar("T")


def prepare(model: T) -> T:
    """Return a copy of a model for decoding that shares its tensors.

    Parameters and modules are attributes of the instance. Weights under autocast and parametrized
    ones, such as those with LoRA, are computed once: the copy is valid while weights, precision and
    hooks stay the same. Modules with hooks or replaced methods are not copied, and neither is a
    model that isn't an `nn.Module`.
    """
    if isinstance(model, ConditionedModel):
        return replace(model, model=prepare(model.model))
    if not isinstance(model, nn.Module) or is_hooked(model):
        return model
    kind = type_before_parametrizations(model)
    prepared: T = object.__new__(cast("type[T]", DIRECT.get(kind, kind)))
    modules = {name: prepare(module) for name, module in model._modules.items()}
    tensors = {**model._parameters, **model._buffers}
    if is_parametrized(model):
        del modules["parametrizations"]
        names = cast(nn.ModuleDict, model.parametrizations)
        tensors |= {name: getattr(model, name) for name in names}
    if kind is nn.Linear:
        tensors = {n: x if x is None else x.to(product_dtype(x)) for n, x in tensors.items()}
    vars(prepared).update(vars(model) | tensors | modules, _modules=modules)
    return prepared


def is_hooked(module: nn.Module) -> bool:
    """Whether the module has hooks, or methods other than those of its class."""
    kind = type(module)
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or any(callable(x) and hasattr(kind, name) for name, x in vars(module).items())
    )


def has_hooks(model: nn.Module) -> bool:
    """Whether any module has hooks or replaced methods, as under an edit."""
    return any(map(is_hooked, model.modules()))


def _without_hooks(kind: type[nn.Module]) -> type[nn.Module]:
    """Return a subclass whose call is `forward` alone."""
    return type(f"Direct{kind.__name__}", (kind,), {"__call__": kind.forward})


class DirectLayerNorm(nn.LayerNorm):
    """A layer norm without hooks."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    __call__ = forward


class SmallGELU(nn.GELU):
    """GELU by torch's own kernel for few numbers: on a CPU, contiguous tensors go to oneDNN."""

    def forward(self, x: Tensor) -> Tensor:
        half, rest = divmod(x.numel(), 2)
        few = not rest and x.numel() <= FEW_ACTIVATIONS and x.is_contiguous()
        if not few or not x.is_cpu or self.approximate != "none":
            return F.gelu(x, approximate=self.approximate)
        return F.gelu(x.as_strided((half, 2), (1, half))).as_strided(x.shape, x.stride())

    __call__ = forward


DIRECT: dict[type[nn.Module], type[nn.Module]] = {
    nn.Linear: _without_hooks(nn.Linear),
    nn.LayerNorm: DirectLayerNorm,
    RMSNorm: _without_hooks(RMSNorm),
    nn.Embedding: _without_hooks(nn.Embedding),
    Dropout: _without_hooks(Dropout),
    Rotary: _without_hooks(Rotary),
    FeedForward: _without_hooks(FeedForward),
    nn.GELU: SmallGELU,
}
"""Modules that are called for each token, with a subclass that skips hooks."""
