"""The attention that a model applied to a text, taken from a run on its own fast path."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Attention, Bias, Mask, RelativeVectors, State
from regard.errors import RegardError

AnyBias: TypeAlias = Bias | RelativeVectors | None


class MismatchError(RegardError):
    """The weights recomputed from queries and keys don't give the output of the kernel."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Captured:
    """What one layer did: the matrix that it applied, and what it was made of."""

    layer: str
    mechanism: Attention
    query: Float[Tensor, "batch heads queries d"]
    """As the mechanism received them: rotated, where positions are."""
    key: Float[Tensor, "batch kv_heads keys d"]
    value: Float[Tensor, "batch kv_heads keys e"]
    mask: Mask | None
    bias: AnyBias
    weights: Float[Tensor, "batch heads queries keys"]


@torch.inference_mode()
def capture_attention(model: nn.Module, *inputs: Tensor) -> list[Captured]:
    """Run the model on its inputs and return the attention of each layer, first to last.

    Raises:
        MismatchError: weights · values isn't what the kernel gave: the picture would be wrong.
    """
    with recorded(model) as captured:
        model(*inputs)
    return captured


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[Captured]]:
    """What the attention of a model does in the with block, in the order in which it does it.

    Raises:
        MismatchError: weights · values isn't what the kernel gave.
    """
    captured: list[Captured] = []
    with ExitStack() as watched:
        for name, module in mechanisms(model):
            watched.enter_context(_watched(name, module, captured))
        yield captured


def mechanisms(model: nn.Module) -> Iterator[tuple[str, Attention]]:
    """Those that the model calls itself, not those within another."""
    found: list[str] = []
    for name, module in model.named_modules():
        if isinstance(module, Attention) and not any(name.startswith(f"{n}.") for n in found):
            found.append(name)
            yield name, module


@contextmanager
def _watched(name: str, module: Attention, captured: list[Captured]) -> Iterator[None]:
    """Take note of all that a mechanism does: whole sequences, and reading from a memory."""
    memories: dict[int, tuple[State, Tensor, Tensor, Mask | None]] = {}
    remember, read = module.memory, module.read

    def hook(
        _: nn.Module, args: tuple[Tensor, Tensor, Tensor], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        captured.append(_checked(name, module, *args, out, **kwargs))

    def remembering(key: Tensor, value: Tensor, *, mask: Mask | None = None) -> State:
        state = remember(key, value, mask=mask)
        memories[id(state)] = (state, key, value, mask)
        return state

    def reading(query: Tensor, memory: State) -> Tensor:
        out = read(query, memory)
        _, key, value, mask = memories[id(memory)]
        captured.append(_checked(name, module, query, key, value, out, mask=mask))
        return out

    hooked = module.register_forward_hook(hook, with_kwargs=True)
    vars(module).update(memory=remembering, read=reading)
    try:
        yield
    finally:
        hooked.remove()
        del module.memory, module.read


def _checked(
    name: str,
    mechanism: Attention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    mask: Mask | None = None,
    bias: AnyBias = None,
) -> Captured:
    """A call, with the weights that it must have applied."""
    weights = mechanism.weights(query, key, mask=mask, bias=bias)
    _check(name, query, key, value, weights, _added(query, key, weights, mask, bias), out)
    return Captured(
        layer=name,
        mechanism=mechanism,
        query=query,
        key=key,
        value=value,
        mask=mask,
        bias=bias,
        weights=weights,
    )


def _added(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    mask: Mask | None,
    bias: AnyBias,
) -> Tensor | float:
    """What the output holds beside weights · values: vectors added to the values."""
    if not isinstance(bias, RelativeVectors):
        return 0.0
    queries, keys = query.shape[2], key.shape[2]
    positions = (mask or Mask()).query_positions(queries, keys, query.device)
    return bias.gather(weights, positions, torch.arange(keys, device=key.device))


def _check(
    layer: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: Tensor,
    added: Tensor | float,
    out: Tensor,
) -> None:
    heads_a_value = weights.shape[1] // value.shape[1]
    query, exact_weights, found = query.double(), weights.double(), out.double()
    key, value = (x.double().repeat_interleave(heads_a_value, dim=1) for x in (key, value))
    error = (exact_weights @ value + added - found).abs().max()
    # The kernel rounds scores relative to their size, which becomes a relative error of weights;
    # the weights shown are rounded too, each of those that a row sums over.
    scores = (query @ key.mT).abs().max() * query.shape[-1] ** -0.5
    largest = value.abs().max() + found.abs().max()
    eps, keys = torch.finfo(out.dtype).eps, key.shape[2]
    bound = (2 * (1 + scores) * eps + keys * torch.finfo(weights.dtype).eps) * largest
    if not error <= bound:
        raise MismatchError(f"{layer}: weights·values is {error:.2g} off the kernel's output")
