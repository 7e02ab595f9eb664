"""Importance of attention heads to the loss of a model.

The output of each group of heads (a key/value head with the query heads that share it) is
multiplied by a factor ξ = 1 before the output projection. Shapes: b rows, g groups, h heads, n
tokens, d channels.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batch import Batch
from regard.edits.places import attention_layers, intercept_places
from regard.edits.sites import head_counts
from regard.edits.tokens import Hook
from regard.models.builders import Model
from regard.models.head_pruning import groups_of

Factors = Mapping[str, Float[Tensor, "#b g"]]
"""Place of an attention layer → factors of its groups."""
Importance = dict[str, Float[Tensor, " g"]]
"""Place of an attention layer → importance of its groups."""


class GroupLayer(NamedTuple):
    """An attention layer whose heads form groups."""

    name: str
    """Name of the module in the model."""
    groups: int
    heads: int
    """Number of heads of each group."""


def group_layers(model: Model) -> dict[str, GroupLayer]:
    """Return the attention layers of a model by place."""
    names, groups = {module: name for name, module in model.named_modules()}, groups_of(model)
    found = {}
    for parts in attention_layers(model):
        name = names[parts.module]
        if (n := groups.get(name)) is not None:
            found[parts.place] = GroupLayer(name, n, head_counts(parts.module)[3] // n)
    return found


def scaled(factors: Factors) -> dict[str, Hook]:
    """Return hooks that multiply the outputs of groups by factors."""
    return {f"{place}.heads": _times(of_groups) for place, of_groups in factors.items()}


def _times(factors: Float[Tensor, "#b g"]) -> Hook:
    def hook(x: Float[Tensor, "b h n d"], *_: object) -> Float[Tensor, "b h n d"]:
        of_heads = factors.repeat_interleave(x.shape[1] // factors.shape[1], 1)
        return x * of_heads[:, :, None, None].to(x)

    return hook


def gradient_importance(model: Model, batches: Sequence[Batch]) -> Importance:
    """Return I = E |Aᵀ ∂L/∂A| of each group, divided by its norm in the layer.

    A is the output of a group in one row, and L the loss of the row, so that Aᵀ ∂L/∂A = ∂L/∂ξ
    (Michel et al., 2019, arXiv:1905.10650, eq. 2; norms by layer: §4.1).
    """
    layers = group_layers(model)
    sums = {place: torch.zeros(layer.groups) for place, layer in layers.items()}
    rows = 0
    for batch in batches:
        b, device = len(batch.row_numbers), batch.labels.device
        factors = {
            place: torch.ones(b, layer.groups, device=device, requires_grad=True)
            for place, layer in layers.items()
        }
        with torch.enable_grad(), intercept_places(model, scaled(factors)):
            slopes = torch.autograd.grad(model.loss(batch), list(factors.values()))
        for place, slope in zip(factors, slopes, strict=True):
            sums[place] += slope.abs().sum(0).cpu()
        rows += b
    means = {place: total / rows for place, total in sums.items()}
    return {place: mean / mean.norm().clamp_min(1e-30) for place, mean in means.items()}


@torch.no_grad()
def ablation_importance(model: Model, batches: Sequence[Batch]) -> Importance:
    """Return the increase of the loss per target if a group's output is zero, in nats."""
    own = loss_of(model, batches)
    found = {}
    for place, layer in group_layers(model).items():
        without = 1 - torch.eye(layer.groups)
        changes = [loss_of(model, batches, {place: row[None]}) - own for row in without]
        found[place] = torch.tensor(changes)
    return found


@torch.no_grad()
def loss_of(model: Model, batches: Sequence[Batch], factors: Factors | None = None) -> float:
    """Return the mean loss per target, in nats, with factors on groups if given."""
    with intercept_places(model, scaled(factors or {})):
        total = sum(float(model.loss(batch)) for batch in batches)
    return total / sum(batch.n_targets for batch in batches)
