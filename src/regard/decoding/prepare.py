"""Models prepared for decoding: the same methods, without torch's overhead of each module's call.

At one token a step, most of the time is not in the matrix products but in what surrounds them. A
call of an `nn.Module` looks for hooks, and each of its parameters and modules is found by a failed
look-up in three dictionaries.
"""

from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from regard.attention import Attention
from regard.attention.base import product_dtype, without_autocast
from regard.attention.gating import Steps
from regard.attention.softmax import Softmax
from regard.device import FEW_ACTIVATIONS, is_large_cache
from regard.models.builders import ConditionedModel
from regard.models.recurrent import GatedLayer, RecurrentDecoder, RecurrentStates
from regard.models.transformer import Decoder

T = TypeVar("T")


def prepare(model: T) -> T:
    """Return a view of a model that computes the same with fewer steps of Python.

    It shares the model's tensors. Weights under autocast, parametrized ones, such as those with
    LoRA, and the attributes of `_computed` are computed once: the view is valid while weights,
    precision and hooks stay the same. Modules with hooks or a custom `forward` are not replaced,
    and neither is a model that isn't an `nn.Module`.
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
    view: T = object.__new__(_lean(type_before_parametrizations(model)))
    computed = _computed(model, tensors)
    vars(view).update(vars(model) | tensors | modules | computed, _modules=modules)
    return view


def _computed(model: nn.Module, tensors: dict[str, Tensor | None]) -> dict[str, Any]:
    """Return the attributes of a view that are computed once."""
    match model:
        case nn.Linear():  # autocast would convert them anew for each token
            return {n: x if x is None else x.to(product_dtype(x)) for n, x in tensors.items()}
        case Steps():
            return {"rate": model.rate}
        case Decoder():
            return {"vectors": _is_plain(model)}
        case RecurrentDecoder():
            return {"projected": _projected(model)}
    return {}


def _is_plain(model: nn.Module) -> bool:
    """Whether all modules are Regard's or torch's, without hooks; others may rely on shapes."""
    packages = {type_before_parametrizations(m).__module__.split(".")[0] for m in model.modules()}
    return packages <= {"regard", "torch"} and not any(map(is_hooked, model.modules()))


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
def _lean(kind: type[nn.Module]) -> Any:
    """The class of modules whose call is `forward` itself; mechanisms check no shapes."""
    methods = {"__call__": kind.forward, "__module__": kind.__module__, **_METHODS.get(kind, {})}
    if issubclass(kind, Attention):
        methods["_validate_extend"] = lambda *_: None
    return type(kind.__name__, (kind,), methods)


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """Return `nn.Linear.forward`, of a single row as a matrix times a vector.

    Four layers of width 256 take 0.36 ms that way on two cores of an Intel Xeon, in which their
    weights are read once, and 0.43 ms as products of two matrices.
    """
    weight, bias = layer.weight, layer.bias
    if x.numel() != weight.size(1) or not x.is_cpu or weight.dtype.itemsize < 4:
        return F.linear(x, weight, bias) if x.ndim > 1 else F.linear(x[None], weight, bias)[0]
    row = x if x.ndim == 1 else x.reshape(-1)
    y = torch.mv(weight, row) if bias is None else torch.addmv(bias, weight, row)
    return y if x.ndim == 1 else y.view(*x.shape[:-1], -1)


def _gelu(gelu: nn.GELU, x: Tensor) -> Tensor:
    """Return `nn.GELU.forward`, of few numbers by torch's own kernel.

    On a CPU, torch takes oneDNN's kernel for contiguous tensors.
    """
    half, rest = divmod(x.numel(), 2)
    few = not rest and x.numel() <= FEW_ACTIVATIONS and x.is_contiguous()
    if not few or not x.is_cpu or gelu.approximate != "none":
        return F.gelu(x, approximate=gelu.approximate)
    return F.gelu(x.as_strided((half, 2), (1, half))).as_strided(x.shape, x.stride())


def _layer_norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Return `nn.LayerNorm.forward`."""
    return torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _attend_all(softmax: Softmax, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return `Softmax._attend_all`, calling torch's kernel directly in the common case."""
    plain = softmax.scaled and softmax.divisor == 1 and query.is_cpu and not softmax.training
    if not plain or keys.size(1) != query.size(1) or is_large_cache(values):
        return softmax._attend(query, keys, values, None, None)
    return F.scaled_dot_product_attention(query, keys, values)


def _projected(decoder: RecurrentDecoder) -> Float[Tensor, "vocabulary three_d"] | None:
    """Return each token as the first layer of a GRU projects it, if the vocabulary is small."""
    layer, vectors = decoder.recurrence.layers[0], decoder.embedding.weight
    if type(layer) is not GatedLayer or decoder.training or not _is_plain(decoder):
        return None
    with without_autocast(vectors):
        return layer.project(vectors) if len(vectors) <= _FEW_TOKENS else None


_FEW_TOKENS = 1024
"""Largest vocabulary that is projected in advance."""


def _extend_recurrent(
    decoder: Any,
    input_ids: Tensor,
    states: RecurrentStates,
    attention_mask: Tensor | None = None,
) -> tuple[Tensor, RecurrentStates]:
    """Return `RecurrentDecoder.extend`, of single tokens without the first layer's product.

    With 64 rows, a step of two layers of width 256 takes 0.92 of the time.
    """
    if input_ids.shape[1] != 1 or attention_mask is not None or decoder.projected is None:
        return RecurrentDecoder.extend(decoder, input_ids, states, attention_mask)
    projected = decoder.projected.index_select(0, input_ids[:, 0])
    hidden, layers = decoder.recurrence.step(projected, states.layers)
    return hidden, RecurrentStates(layers, states.length + 1)


_METHODS: dict[type[nn.Module], dict[str, Any]] = {
    nn.GELU: {"__call__": _gelu},
    nn.Linear: {"__call__": _linear},
    nn.LayerNorm: {"__call__": _layer_norm},
    Softmax: {"_attend_all": _attend_all},
    RecurrentDecoder: {"extend": _extend_recurrent},
    Steps: {"rate": None},  # an attribute of the view
}
"""What a view's class has in place of the methods of its kind."""
