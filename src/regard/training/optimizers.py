"""Optimizers, the learning rate of a step, and the norm of gradients."""

from collections.abc import Sequence
from math import cos, isfinite, pi

import torch
from torch import nn

from regard.data.batch import Sampler
from regard.errors import NonFiniteError
from regard.models.builders import Model
from regard.models.recurrent import LinearRNN
from regard.runs.recipe import (
    AdamWConfig,
    CosineConfig,
    MinGPTConfig,
    ScheduleConfig,
    TrainingConfig,
)
from regard.training.muon import Muon
from regard.training.replica import gathered


def make_optimizers(
    model: Model, config: TrainingConfig, dtype: torch.dtype = torch.float32
) -> list[torch.optim.Optimizer]:
    """Return the optimizers of a training, each parameter in exactly one.

    Only the weights of linear layers decay: chosen by the module that owns them, not by name.
    `dtype` is the precision of the optimizers' own matrix products.
    """
    matrices, head, others = _parameter_groups(model)
    optimizer = config.optimizer
    if isinstance(optimizer, AdamWConfig):
        groups = [
            {"params": [*matrices, *head], "weight_decay": optimizer.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        return [_adamw(groups, config.lr, optimizer.betas)]
    rest = [{"params": [*head, *others], "weight_decay": 0.0}]
    adamw = _adamw(rest, config.lr, optimizer.betas)
    if not matrices:
        return [adamw]
    muon = Muon(
        matrices,
        lr=optimizer.muon_lr,
        momentum=optimizer.momentum,
        weight_decay=optimizer.weight_decay,
        dtype=dtype,
    )
    return [muon, adamw]


class Schedule:
    """The learning rate of each step, as a factor of the highest."""

    def __init__(self, config: ScheduleConfig, sampler: Sampler, context_length: int) -> None:
        """`context_length` is that of each row of the sampler."""
        self._config, self._sampler, self._context_length = config, sampler, context_length

    def factor(self, step: int) -> float:
        """Return the learning-rate multiplier of a step in 0..steps-1."""
        match self._config:
            case CosineConfig():
                return _cosine(step, self._sampler.steps, self._config)
            case MinGPTConfig(positions=positions, final=final):
                # A row has so many targets before the token that may follow it.
                seen = self._sampler.rows_before(step) * (self._context_length - 1)
                return mingpt_factor(seen, positions, final)


def mingpt_factor(seen: int, positions: int, final: float = 0.1) -> float:
    """Return minGPT's factor after so many positions; beyond `positions`, it rises again."""
    return max(final, _half_cosine(seen / positions))


def _cosine(step: int, steps: int, config: CosineConfig) -> float:
    """Linear rise, then a cosine that ends with the last step; it never rises again."""
    warmup = max(1, round(config.warmup * steps))
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return config.final + (1 - config.final) * _half_cosine(progress)


def _half_cosine(progress: float) -> float:
    return (1 + cos(pi * progress)) / 2


def set_rate(optimizers: Sequence[torch.optim.Optimizer], factor: float) -> None:
    """Scale each optimizer's learning rate from its highest."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("highest_lr", optimizer.defaults["lr"]) * factor


def _parameter_groups(
    model: Model,
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Trained matrices of the body, those of the head, everything else that is trained."""
    matrices = _matrices(model.body)
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = [matrix for matrix in _matrices(model.head) if id(matrix) not in embeddings]  # tied
    taken = {id(parameter) for parameter in (*matrices, *head)}
    return matrices, head, [p for p in model.parameters() if p.requires_grad and id(p) not in taken]


def _matrices(part: nn.Module) -> list[nn.Parameter]:
    """Those that multiply hidden states."""
    return [
        parameter
        for module in part.modules()
        if isinstance(module, nn.Linear | nn.RNNBase | LinearRNN)
        for parameter in module.parameters()
        if parameter.ndim == 2 and parameter.requires_grad
    ]


def _adamw(
    groups: list[dict[str, object]], lr: float, betas: tuple[float, float]
) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


def clip_gradients(model: nn.Module, limit: float, loss: float, step: int) -> float:
    """Scale the gradient to norm `limit` at most, and return its norm before.

    Raises:
        NonFiniteError: the loss or a gradient is NaN or infinite; names step and parameter.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = gathered(nn.utils.get_total_norm(gradients))
    norm = float(total)
    if not (isfinite(norm) and isfinite(loss)):
        culprit = next(
            (
                f"the gradient of {name}"
                for name, p in model.named_parameters()
                if p.grad is not None and not torch.isfinite(gathered(p.grad)).all()
            ),
            "the norm of the gradient",
        )
        raise NonFiniteError(
            f"step {step}: loss {loss:g}, and {culprit} is NaN or infinite; the weights are as "
            "before this step. Lower the learning rate, or clip more"
        )
    nn.utils.clip_grads_with_norm_(model.parameters(), limit, total)
    return norm
