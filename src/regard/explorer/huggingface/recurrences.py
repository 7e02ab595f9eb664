"""Intercept the recurrent layers of a Hugging Face model: Mamba-2 and the gated delta rule.

transformers computes them by a function of the model's Python module, which each layer calls with
its queries, keys, values and gates. In the with block, a wrapper makes a record of each call.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import GatedDeltaNet, Mamba2, Mask
from regard.attention.gated import RecurrentAttention
from regard.errors import UserError
from regard.explorer.intercept import Handler, make_record


class Call(NamedTuple):
    """Arguments of a layer's call, (batch, heads, tokens, ·), and a term added to its output."""

    mechanism: RecurrentAttention
    query: Tensor
    key: Tensor
    value: Tensor
    gates: dict[str, Tensor]
    added: Tensor | float = 0.0


def _gated_delta(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, **settings: Any
) -> Call:
    """Convert the arguments of `torch_chunk_gated_delta_rule`."""
    _require_start(settings.get("initial_state"))
    if settings.get("use_qk_l2norm_in_kernel"):
        query, key = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (query, key))
    heads, value = value.shape[2], value.transpose(1, 2)
    query, key = (_repeated(x, heads).transpose(1, 2) for x in (query, key))
    gates = {"log_decay": g.transpose(1, 2), "beta": beta.transpose(1, 2)}
    return Call(GatedDeltaNet(), query, key, value, gates)


def _mamba2(
    x: Tensor, dt: Tensor, rate: Tensor, writes: Tensor, reads: Tensor, /, **settings: Any
) -> Call:
    """Convert the arguments of `mamba2_chunk_scan`: x, Δ, A, B, C (Dao & Gu, 2024, eq. 1)."""
    _require_start(settings.get("initial_states"))
    if settings.get("dt_bias") is not None:
        dt = dt + settings["dt_bias"]
    if settings.get("dt_softplus"):
        dt = F.softplus(dt)
    steps = dt.clamp(*settings.get("dt_limit", (0.0, float("inf"))))
    heads, x = x.shape[2], x.transpose(1, 2)
    key, query = (_repeated(part, heads).transpose(1, 2) for part in (writes, reads))
    gates = {"log_decay": (rate * steps).transpose(1, 2)}
    skip = settings.get("D")
    added = 0.0 if skip is None else skip[:, None, None] * x
    return Call(Mamba2(), query, key, x * steps.transpose(1, 2)[..., None], gates, added)


SCANS: dict[str, Callable[..., Call]] = {
    "torch_chunk_gated_delta_rule": _gated_delta,
    "mamba2_chunk_scan": _mamba2,
}
"""Name of a function in transformers' modules → conversion of its arguments."""

Layers: TypeAlias = dict[str, nn.Module]


def recurrent_layers(model: nn.Module) -> Layers:
    """Return the layers that call one of these functions, by path."""
    return {
        path: module
        for path, module in model.named_modules()
        if "A_log" in dict(module.named_parameters(recurse=False)) and _scans(_source(module))
    }


@contextmanager
def intercept_recurrences(layers: Layers, handler: Handler) -> Iterator[None]:
    """Call the handler for each of the layers that runs in the with block.

    Raises:
        MismatchError: weights · values isn't the output of the layer's function.
        UserError: a layer continues from a state.
    """
    running: list[str] = []
    with ExitStack() as changed:
        for path, layer in layers.items():
            hook = layer.register_forward_pre_hook(partial(_enter, running, path))
            changed.callback(hook.remove)
        for source in {_source(layer) for layer in layers.values()}:
            for name in _scans(source):
                original = getattr(source, name)
                changed.callback(setattr, source, name, original)
                setattr(source, name, partial(_scan, name, original, running, handler))
        yield


def _enter(running: list[str], path: str, *_: Any) -> None:
    running[:] = [path]


def _scan(
    name: str,
    original: Callable[..., Any],
    running: list[str],
    handler: Handler,
    *args: Any,
    **settings: Any,
) -> Any:
    """Run the function of transformers, and pass its record to the handler."""
    call = SCANS[name](*args, **settings)
    alone = {**settings, "D": None} if "D" in settings else settings  # without the term added below
    result = original(*args, **alone)
    whole, *rest = result if isinstance(result, tuple) else (result,)
    out = whole.transpose(1, 2)
    mechanism = call.mechanism.eval()
    inputs, gates = (call.query, call.key, call.value), call.gates
    record = make_record(running[0], mechanism, inputs, out, mask=Mask.causal(), gates=gates)
    replaced = (handler(record) + call.added).transpose(1, 2).to(whole.dtype)
    return (replaced, *rest) if isinstance(result, tuple) else replaced


def _source(module: nn.Module) -> ModuleType:
    return sys.modules[type(module).__module__]


def _scans(source: ModuleType) -> list[str]:
    return [name for name in SCANS if hasattr(source, name)]


def _repeated(x: Tensor, heads: int) -> Tensor:
    """(b, n, groups, d) → (b, n, heads, d)."""
    return x.repeat_interleave(heads // x.shape[2], 2)


def _require_start(state: Tensor | None) -> None:
    if state is not None:
        raise UserError("a layer continues from a state: give it the whole text at once")
