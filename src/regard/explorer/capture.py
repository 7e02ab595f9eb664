"""The attention that a model applied to a text, taken from a run on its own fast path."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Bias, Mask, RelativeVectors, State
from regard.attention.exact import Exact
from regard.attention.sparse import BlockSparse
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
    out: Float[Tensor, "batch heads queries e"]
    """What the kernel gave."""
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


Made: TypeAlias = tuple[Tensor, Tensor, Mask | None]
"""The keys and values of a memory, and which of them may be looked at."""


@contextmanager
def remembered(module: Attention) -> Iterator[Callable[[State], Made]]:
    """Tells, in the with block, what each memory that a mechanism makes there is made of."""
    memories: dict[int, tuple[State, Made]] = {}
    remember = module.memory

    def remembering(key: Tensor, value: Tensor, *, mask: Mask | None = None) -> State:
        state = remember(key, value, mask=mask)
        memories[id(state)] = state, (key, value, mask)  # which keeps the id its own
        return state

    vars(module).update(memory=remembering)
    try:
        yield lambda state: memories[id(state)][1]
    finally:
        del module.memory


@contextmanager
def _watched(name: str, module: Attention, captured: list[Captured]) -> Iterator[None]:
    """Take note of all that a mechanism does: whole sequences, and reading from a memory."""
    read = module.read

    def hook(
        _: nn.Module, args: tuple[Tensor, Tensor, Tensor], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        captured.append(checked(name, module, *args, out, **kwargs))

    with remembered(module) as made_of:

        def reading(query: Tensor, memory: State) -> Tensor:
            out = read(query, memory)
            key, value, mask = made_of(memory)
            captured.append(checked(name, module, query, key, value, out, mask=mask))
            return out

        hooked = module.register_forward_hook(hook, with_kwargs=True)
        vars(module).update(read=reading)
        try:
            yield
        finally:
            hooked.remove()
            del module.read


def checked(
    name: str,
    mechanism: Attention,
    query: Float[Tensor, "batch heads queries d"],
    key: Float[Tensor, "batch kv_heads keys d"],
    value: Float[Tensor, "batch kv_heads keys e"],
    out: Float[Tensor, "batch heads queries e"],
    mask: Mask | None = None,
    bias: AnyBias = None,
) -> Captured:
    """What a kernel made of its inputs, with the weights that it must have applied.

    Raises:
        MismatchError: weights · values isn't what the kernel gave.
    """
    captured = Captured(
        layer=name,
        mechanism=mechanism,
        query=query,
        key=key,
        value=value,
        out=out,
        mask=mask,
        bias=bias,
        weights=mechanism.weights(query, key, mask=mask, bias=bias),
    )
    _check(captured)
    return captured


def exact_of(mechanism: Attention) -> Exact | None:
    """What turns scores into weights, where there are scores."""
    inner = mechanism.exact if isinstance(mechanism, BlockSparse) else mechanism
    return inner if isinstance(inner, Exact) else None


def positions_of(captured: Captured) -> tuple[Int[Tensor, " queries"], Int[Tensor, " keys"]]:
    """Where its queries and its keys stand."""
    query, key = captured.query, captured.key
    keys, mask = key.shape[2], captured.mask or Mask()
    places = mask.query_positions(query.shape[2], keys, key.device)
    return places, torch.arange(keys, device=key.device)


def from_distances(
    weights: Float[Tensor, "batch heads queries keys"], mask: Mask | None, bias: AnyBias
) -> Float[Tensor, "batch heads queries e"] | float:
    """What the output holds beside weights · values: vectors added to the values."""
    if not isinstance(bias, RelativeVectors):
        return 0.0
    queries, keys = weights.shape[2:]
    positions = (mask or Mask()).query_positions(queries, keys, weights.device)
    return bias.gather(weights, positions, torch.arange(keys, device=weights.device))


def _check(captured: Captured) -> None:
    query, key, value, out = captured.query, captured.key, captured.value, captured.out
    heads_a_value = captured.weights.shape[1] // value.shape[1]
    weights, found, query = captured.weights.double(), out.double(), query.double()
    key, value = (x.double().repeat_interleave(heads_a_value, dim=1) for x in (key, value))
    error = (
        (weights @ value + from_distances(captured.weights, captured.mask, captured.bias) - found)
        .abs()
        .max()
    )
    # The kernel rounds scores relative to their size, which becomes a relative error of weights;
    # the weights shown are rounded too, each of those that a row sums over.
    exact, d = exact_of(captured.mechanism), query.shape[-1]
    scores = (query @ key.mT).abs().max() * (exact.scale(d) if exact else d**-0.5)
    scores = scores + _felt(captured)
    largest = value.abs().max() + found.abs().max()
    eps, keys = torch.finfo(out.dtype).eps, key.shape[2]
    bound = (2 * (1 + scores) * eps + keys * torch.finfo(captured.weights.dtype).eps) * largest
    if not error <= bound:
        raise MismatchError(
            f"{captured.layer}: weights·values is {error:.2g} off the kernel's output"
        )


def _felt(captured: Captured) -> Tensor | float:
    """The size of the bias where a query's weight goes; elsewhere its rounding doesn't matter."""
    bias = captured.bias
    if bias is None or isinstance(bias, RelativeVectors):
        return 0.0
    return (captured.weights * bias.dense(*positions_of(captured)).abs()).sum(-1).max()
