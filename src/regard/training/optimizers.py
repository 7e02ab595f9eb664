"""Optimizers, including Muon; learning-rate schedules, and gradient clipping."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import unwrap
from math import cos, isfinite, pi, sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
from regard.training.replica import gathered, sharded_like


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
        return [AdamW(groups, lr=config.lr, betas=optimizer.betas, fused=True)]
    rest = [{"params": [*head, *others], "weight_decay": 0.0}]
    adamw = AdamW(rest, lr=config.lr, betas=optimizer.betas, fused=True)
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
                # Targets of a row, not counting the token that may follow it.
                seen = self._sampler.rows_before(step) * (self._context_length - 1)
                return mingpt_factor(seen, positions, final)


def mingpt_factor(seen: int, positions: int, final: float = 0.1) -> float:
    """Return minGPT's factor after `seen` positions; beyond `positions`, it rises again."""
    return max(final, _half_cosine(seen / positions))


def _cosine(step: int, steps: int, config: CosineConfig) -> float:
    """Return the factor of a linear warmup, then of half a cosine until the last step."""
    warmup = max(1, round(config.warmup * steps))
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return config.final + (1 - config.final) * _half_cosine(progress)


def _half_cosine(progress: float) -> float:
    return (1 + cos(pi * progress)) / 2


def set_rate(optimizers: Sequence[torch.optim.Optimizer], factor: float) -> None:
    """Set each learning rate to `factor` times the highest of its optimizer."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = optimizer.defaults["lr"] * factor


def _parameter_groups(
    model: Model,
) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """Return the trained matrices of the body, those of the head, and other trained parameters."""
    matrices = _matrices(model.body)
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = [matrix for matrix in _matrices(model.head) if id(matrix) not in embeddings]  # tied
    taken = {id(parameter) for parameter in (*matrices, *head)}
    return matrices, head, [p for p in model.parameters() if p.requires_grad and id(p) not in taken]


def _matrices(part: nn.Module) -> list[nn.Parameter]:
    """Return the trained matrices that multiply hidden states."""
    return [
        parameter
        for module in part.modules()
        if isinstance(module, nn.Linear | nn.RNNBase | LinearRNN)
        for parameter in module.parameters()
        if parameter.ndim == 2 and parameter.requires_grad
    ]


def clip_gradients(
    parameters: Mapping[str, nn.Parameter], limit: float, loss: float, step: int
) -> float:
    """Scale the gradient to norm `limit` at most, and return its norm before.

    Raises:
        NonFiniteError: the loss or a gradient is NaN or infinite; names step and parameter.
    """
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    total = gathered(nn.utils.get_total_norm(gradients))
    norm = float(total)
    if not (isfinite(norm) and isfinite(loss)):
        culprit = next(
            (
                f"the gradient of {name}"
                for name, p in parameters.items()
                if p.grad is not None and not torch.isfinite(gathered(p.grad)).all()
            ),
            "the norm of the gradient",
        )
        raise NonFiniteError(
            f"step {step}: loss {loss:g}, and {culprit} is NaN or infinite; the weights are as "
            "before this step. Lower the learning rate, or clip more"
        )
    nn.utils.clip_grads_with_norm_(parameters.values(), limit, total)
    return norm


class Optimizer(torch.optim.Optimizer):
    """A `torch.optim.Optimizer` that doesn't import torch's compiler, which takes a second.

    torch wraps these methods for it; they are the same otherwise.
    """

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = unwrap(torch.optim.Optimizer.load_state_dict)


class Adam(Optimizer, torch.optim.Adam):
    """`torch.optim.Adam` as an `Optimizer`."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(Optimizer, torch.optim.AdamW):
    """`torch.optim.AdamW` as an `Optimizer`."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


COEFFICIENTS = 3.4445, -4.7750, 2.0315
"""a, b and c of f(σ) = aσ + bσ³ + cσ⁵, with the steepest rise from 0."""
ITERATIONS = 5


class Muon(Optimizer):
    """Momentum whose matrices are orthogonalized (Jordan et al., 2024).

    https://kellerjordan.github.io/posts/muon. Unlike torch.optim.Muon, whose products are always
    in bfloat16, it has a choice of their precision.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        dtype: torch.dtype,
    ) -> None:
        """`dtype` is the precision of the matrix products."""
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all matrices that have a gradient."""
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, matrix.grad, group)

    def _update(self, matrix: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state, momentum = self.state[matrix], group["momentum"]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        ahead = gradient.lerp(mean, momentum)  # Nesterov
        rows, columns = matrix.shape
        rate = group["lr"] * sqrt(max(1, rows / columns))
        matrix.mul_(1 - group["lr"] * group["weight_decay"])
        whole = orthogonalized(gathered(ahead).to(self._dtype))
        matrix.add_(sharded_like(matrix, whole), alpha=-rate)


def orthogonalized(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Return a matrix with the same singular vectors and singular values of about 1.

    Newton-Schulz: f is applied five times to the singular values of the matrix over its norm. It
    maps those above 0.002 to between 0.68 and 1.21.
    """
    wide = matrix.mT if matrix.size(0) > matrix.size(1) else matrix
    x = wide / wide.norm().clamp(min=1e-7)
    by_gram = 2 * x.size(0) <= x.size(1) and x.dtype.itemsize >= 4
    x = _iterate_gram(x) if by_gram else _iterate(x)
    return x.mT if wide is not matrix else x


def _iterate(x: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Return X after all iterations X ← (aI + bG + cG²)X, where G = XXᵀ."""
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _iterate_gram(x: Float[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """Return the same as `_iterate`, in 0.55 to 0.7 of the time if n is 4 to 3 times m.

    The factors Q = aI + bG + cG² of all iterations are polynomials of the first G and commute. So
    the next G is QGQ, and all products but the first and the last are of m × m matrices. In half
    precision this needs restarts (https://dao-lab.ai/blog/2026/gram-newton-schulz).
    """
    gram = x @ x.mT
    factor = product = _factor(gram)
    for _ in range(ITERATIONS - 1):
        gram = factor @ gram @ factor
        factor = _factor(gram)
        product = factor @ product
    return product @ x


def _factor(gram: Float[Tensor, "m m"]) -> Float[Tensor, "m m"]:
    a, b, c = COEFFICIENTS
    factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal().add_(a)
    return factor
