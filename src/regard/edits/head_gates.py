"""Gates of attention heads, trained while the weights stay frozen.

A gate multiplies the output of a group of heads, before the output projection. It is a Hard
Concrete variable (Louizos et al., 2018, arXiv:1712.01312): in [0, 1], with log α determining the
probabilities of exactly 0 and exactly 1. Shapes: b rows, g groups.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batch import Batch
from regard.edits.head_importance import Importance, group_layers, loss_of, scaled
from regard.edits.places import intercept_places
from regard.models.builders import Model

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1
"""Temperature and stretched interval of the variables, those of Louizos et al. (2018)."""
OPEN = 3.0
"""Initial log α: P(g ≠ 0) = 0.99, so nearly all gates are open."""
STEPS, RATE = 200, 0.1
"""Number of Adam steps, with one batch each, and the learning rate."""

LogAlphas: TypeAlias = Mapping[str, Float[Tensor, " g"]]
"""log α of the gates, by the place of an attention layer."""


def gate_importance(
    model: Model,
    batches: Sequence[Batch],
    *,
    penalty: float | None = None,
    steps: int = STEPS,
    seed: int = 0,
) -> Importance:
    """Return P(g ≠ 0) of each group's gate, after training the gates to minimize `gated_loss`.

    The weights stay frozen; Voita et al. (2019, arXiv:1905.09418) train them, too. `penalty` is λ,
    in nats per gate; default: `mean_worth`.
    """
    penalty = mean_worth(model, batches) if penalty is None else penalty
    draw = torch.Generator().manual_seed(seed)
    log_alphas = {
        place: torch.full((layer.groups,), OPEN, dtype=torch.float64, requires_grad=True)
        for place, layer in group_layers(model).items()
    }
    learned = list(log_alphas.values())
    adam = torch.optim.Adam(learned, lr=RATE)
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
