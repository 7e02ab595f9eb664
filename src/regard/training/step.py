"""One step of training: loss, gradients, and the refusal to go on with bad numbers."""

from collections.abc import Sequence
from math import isfinite

import torch
from torch import nn

from regard.attention import KernelAttention
from regard.errors import NonFiniteError, NormalizerError
from regard.models.builders import Model
from regard.runs.environment import ExecutionEnvironment
from regard.text.batches import Batch
from regard.training.losses import Body, summed_loss

CPU_TOKENS = 2048
"""What a CPU is best given at a time.

Activations of more leave its cache, and are so large that the C library asks the system anew for
each of them; of fewer, the products slow down (benchmarks/training.py).
"""


def best_parts(batch: Batch, environment: ExecutionEnvironment, at_least: int = 1) -> int:
    """In how many parts a machine is fastest through a batch."""
    if environment.device.type != "cpu":
        return at_least
    return max(at_least, round(batch.positions / CPU_TOKENS))


def accumulate_gradients(
    model: Model,
    batch: Batch,
    environment: ExecutionEnvironment,
    *,
    parts: int = 1,
    body: Body | None = None,
) -> float:
    """Gradients of the mean loss over the targets of the whole batch, taken in parts.

    Returns:
        That mean loss, in nats.
    """
    n_targets, total = batch.n_targets, 0.0
    for part in batch.split(parts):
        with environment.autocast():
            loss = summed_loss(model, part.to(environment.device), body) / n_targets
        loss.backward()
        total += loss.item()
    return total


def check_normalizers(model: nn.Module, step: int) -> None:
    """Stop where compiled kernel attention has divided by a sum that wasn't positive.

    Raises:
        NormalizerError: names step and layer. Uncompiled attention stops by itself, at once.
    """
    for name, module in model.named_modules():
        if isinstance(module, KernelAttention) and int(module.nonpositive):
            raise NormalizerError(
                f"step {step}: in {name}, the weights of {int(module.nonpositive)} queries added "
                "up to zero or less since training started; the last checkpoint is from before. "
                "Lower the learning rate, or take features that are always positive"
            )


def clip_gradients(model: nn.Module, limit: float, loss: float, step: int) -> float:
    """Scale the gradient to norm `limit` at most.

    Raises:
        NonFiniteError: the loss or a gradient is NaN or infinite; names step and parameter.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    total = nn.utils.get_total_norm(gradients)
    norm = float(total)
    if not (isfinite(norm) and isfinite(loss)):
        culprit = next(
            (
                f"the gradient of {name}"
                for name, p in model.named_parameters()
                if p.grad is not None and not torch.isfinite(p.grad).all()
            ),
            "the norm of the gradient",
        )
        raise NonFiniteError(
            f"step {step}: loss {loss:g}, and {culprit} is NaN or infinite; the weights are as "
            "before this step. Lower the learning rate, or clip more"
        )
    nn.utils.clip_grads_with_norm_(model.parameters(), limit, total)
    return norm


@torch.no_grad()
def mean_loss(model: Model, batches: Sequence[Batch], environment: ExecutionEnvironment) -> float:
    """Mean loss a target in evaluation mode, in nats."""
    model.eval()
    with environment.autocast():
        losses = [summed_loss(model, batch.to(environment.device)).item() for batch in batches]
    model.train()
    return sum(losses) / sum(batch.n_targets for batch in batches)
