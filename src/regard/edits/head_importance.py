"""Importance of attention heads to the loss of a model.

The output of each group of heads (a key/value head with the query heads that share it) is
multiplied by a factor ξ = 1 before the output projection. Shapes: b rows, g groups, h heads, n
tokens, d channels.

The factors may also be gates, which are trained while the weights stay frozen. A gate is a Hard
Concrete variable (Louizos et al., 2018, arXiv:1712.01312): in [0, 1], with log α determining the
probabilities of exactly 0 and exactly 1.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import NamedTuple, TypeAlias

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


# Gates

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1
"""Temperature and stretched interval of the variables, those of Louizos et al. (2018)."""
OPEN_GATE = 3.0
"""Initial log α: P(g ≠ 0) = 0.99, so nearly all gates are open."""
GATE_STEPS, GATE_RATE = 200, 0.1
"""Number of Adam steps, with one batch each, and the learning rate."""

LogAlphas: TypeAlias = Mapping[str, Float[Tensor, " g"]]
"""log α of the gates, by the place of an attention layer."""


def gate_importance(
    model: Model,
    batches: Sequence[Batch],
    *,
    penalty: float | None = None,
    steps: int = GATE_STEPS,
    seed: int = 0,
) -> Importance:
    """Return P(g ≠ 0) of each group's gate, after training the gates to minimize `gated_loss`.

    The weights stay frozen; Voita et al. (2019, arXiv:1905.09418) train them, too. `penalty` is λ,
    in nats per gate; default: `mean_worth`.
    """
    penalty = mean_worth(model, batches) if penalty is None else penalty
    draw = torch.Generator().manual_seed(seed)
    log_alphas = {
        place: torch.full((layer.groups,), OPEN_GATE, dtype=torch.float64, requires_grad=True)
        for place, layer in group_layers(model).items()
    }
    learned = list(log_alphas.values())
    adam = torch.optim.Adam(learned, lr=GATE_RATE)
    for turn in torch.randint(len(batches), (steps,), generator=draw).tolist():
        with torch.enable_grad():
            loss = gated_loss(model, batches[turn], log_alphas, penalty, draw)
            slopes = torch.autograd.grad(loss, learned)
        for log_alpha, slope in zip(learned, slopes, strict=True):
            log_alpha.grad = slope
        adam.step()
    return {place: open_probability(one.detach()) for place, one in log_alphas.items()}


def mean_worth(model: Model, batches: Sequence[Batch]) -> float:
    """Return the increase of the loss per target without any group, per group, in nats.

    At least 0.
    """
    none = {place: torch.zeros(1, layer.groups) for place, layer in group_layers(model).items()}
    saved = loss_of(model, batches, none) - loss_of(model, batches)
    return max(saved, 0.0) / sum(zeros.numel() for zeros in none.values())


def gated_loss(
    model: Model, batch: Batch, log_alphas: LogAlphas, penalty: float, draw: torch.Generator
) -> Float[Tensor, ""]:
    """Return the loss per target, in nats, plus λ Σ P(g ≠ 0) (Voita et al., 2019).

    Gates are sampled separately for each row of the batch.
    """
    rows = len(batch.row_numbers)
    gates = {place: sampled_gates(one, rows, draw) for place, one in log_alphas.items()}
    with intercept_places(model, scaled(gates)):
        loss = model.loss(batch) / max(batch.n_targets, 1)
    return loss + penalty * sum(open_probability(one).sum() for one in log_alphas.values())


def sampled_gates(
    log_alpha: Float[Tensor, " g"], rows: int, draw: torch.Generator
) -> Float[Tensor, "b g"]:
    """Return gates in [0, 1], drawn for each row (Louizos et al., 2018, §2.2)."""
    u = torch.rand(rows, len(log_alpha), generator=draw, dtype=log_alpha.dtype)
    concrete = torch.sigmoid((torch.logit(u, eps=1e-6) + log_alpha) / BETA)
    return (GAMMA + (ZETA - GAMMA) * concrete).clamp(0, 1)


def open_probability(log_alpha: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
    """Return P(g ≠ 0) of gates (Louizos et al., 2018, §2.2)."""
    return torch.sigmoid(log_alpha - BETA * log(-GAMMA / ZETA))
