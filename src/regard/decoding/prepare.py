"""Models prepared for decoding: the same methods, without torch's overhead of each module's call.

At one token a step, most of the time is not in the matrix products but in what surrounds them. A
call of an `nn.Module` looks for hooks, and each of its parameters and modules is found by a failed
look-up in three dictionaries.
"""

from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

from torch import nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from regard.attention.base import product_dtype
from regard.models.builders import ConditionedModel

T = TypeVar("T")


def prepare(model: T) -> T:
    """Return a view of a model that computes the same with fewer steps of Python.

    It shares all tensors but those of linear layers under autocast; these, and parametrized ones,
    such as weights with LoRA, are computed once: use it as long as the weights and the precision
    don't change. Modules with hooks or a forward of their own stay as
    they are, and so does a model that is no `nn.Module`.
    """
    if isinstance(model, ConditionedModel):
        return replace(model, model=prepare(model.model))
    if not isinstance(model, nn.Module) or is_hooked(model):
        return model
    modules = {name: prepare(module) for name, module in model._modules.items()}
    tensors = {**model._parameters, **model._buffers}
    if is_parametrized(model):
        del modules["parametrizations"]
        names = cast(nn.ModuleDict, model.parametrizations)
        tensors |= {name: getattr(model, name) for name in names}
    if isinstance(model, nn.Linear):  # autocast would convert them anew for each token
        tensors = {name: x if x is None else x.to(product_dtype(x)) for name, x in tensors.items()}
    kind = _without_hooks(type_before_parametrizations(model))
    view: T = object.__new__(kind)
    vars(view).update(vars(model) | tensors | modules, _modules=modules)
    return view


def is_hooked(module: nn.Module) -> bool:
    """Whether a call of the module does more than its class's `forward`."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
    )


@cache
def _without_hooks(kind: type[nn.Module]) -> Any:
    """The class of modules whose call is `forward` itself."""
    return type(kind.__name__, (kind,), {"__call__": kind.forward, "__module__": kind.__module__})
