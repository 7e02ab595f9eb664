"""The attention that a model applied to a text, taken from a run on its own fast path."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Bias, Mask, RelativeVectors
from regard.errors import RegardError


class MismatchError(RegardError):
    """The weights recomputed from queries and keys don't give the output of the kernel."""


@dataclass(frozen=True, eq=False)
class Captured:
    """The matrix that one layer applied."""

    layer: str
    weights: Float[Tensor, "batch heads queries keys"]


@torch.inference_mode()
def capture_attention(model: nn.Module, ids: Int[Tensor, "batch n"]) -> list[Captured]:
    """Run the model on some ids and return the attention of each layer, first to last.

    Raises:
        MismatchError: weights · values isn't what the kernel gave: the picture would be wrong.
    """
    with _recorded(model) as captured:
        model(ids)
    return captured


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[Captured]]:
    captured: list[Captured] = []

    def hook_for(name: str) -> Any:
        def hook(module: Attention, args: tuple[Tensor, ...], kwargs: Any, out: Tensor) -> None:
            query, key, value = args
            weights = module.weights(query, key, **kwargs)
            added = _added(query, key, weights, **kwargs)
            _check(name, query, key, value, weights, added, out)
            captured.append(Captured(name, weights))

        return hook

    hooks = [
        module.register_forward_hook(hook_for(name), with_kwargs=True)
        for name, module in model.named_modules()
        if isinstance(module, Attention)
    ]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()


def _added(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    mask: Mask | None = None,
    bias: Bias | RelativeVectors | None = None,
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
