"""The state of a training: optimizers with the learning rate, gradients, and checkpoints."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, isfinite, pi
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn

from regard.errors import NonFiniteError, UserError
from regard.files import pack_tensors, read_tensors, write_file, write_folder
from regard.models.builders import Model, saved_tensors
from regard.models.recurrent import LinearRNN
from regard.runs.recipe import (
    AdamWConfig,
    CosineConfig,
    MinGPTConfig,
    ScheduleConfig,
    TrainingConfig,
)
from regard.runs.run import Run, pack_run_tensors
from regard.training.replica import Replica, gathered


def make_optimizers(model: Model, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of a stage, each parameter in exactly one.

    Only the weights of linear layers decay: chosen by the module that owns them, not by name.
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
    muon = torch.optim.Muon(
        matrices,
        lr=optimizer.muon_lr,
        weight_decay=optimizer.weight_decay,
        momentum=optimizer.momentum,
    )
    return [muon, adamw]


def rate_factor(step: int, steps: int, seen: int, schedule: ScheduleConfig) -> float:
    """The learning rate of a step, before which so many positions were seen, over the highest."""
    match schedule:
        case CosineConfig():
            return _cosine(step, steps, schedule)
        case MinGPTConfig(positions=positions, final=final):
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


def set_rate(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Scale each optimiser's learning rate from its highest."""
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


# Checkpoints: the state of training on disk, for exact resume

KEPT = 2
"""Newest checkpoints that stay on disk by default."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a training. Random numbers need no state: all depend on (seed, step)."""

    step: int = 0
    """Steps done."""
    tokens: int = 0
    """Positions seen, padding included."""
    seconds: float = 0.0
    """Time spent."""
    losses: tuple[float, ...] = ()
    """Of the steps since the last line of metrics."""
    best_loss: float | None = None
    """Lowest validation loss so far."""
    best_step: int = 0
    """When it was reached; without validation, the last checkpoint."""
    checks_since_best: int = 0
    """Validations since then."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that holds a complete state."""

    path: Path
    progress: Progress
    environment: dict[str, str | int]


class _State(msgspec.Struct):
    progress: Progress
    environment: dict[str, str | int]


def save_checkpoint(
    run: Run,
    states: Mapping[str, Tensor],
    progress: Progress,
    environment: dict[str, str | int],
    *,
    kept: int = KEPT,
) -> None:
    """Write the state after `progress.step` steps, then delete all but the newest `kept`.

    `states` are the tensors of the optimizers.
    """
    folder = run.path / "checkpoints"
    folder.mkdir(exist_ok=True)
    target = folder / str(progress.step)
    if not target.exists():
        write_folder(
            target,
            {
                "model.safetensors": pack_run_tensors(run, saved_tensors(run.model)),
                "optimizer.safetensors": pack_tensors(states),
                "state.json": msgspec.json.encode(_State(progress, environment)),
            },
        )
    for old in _steps(folder)[:-kept]:
        shutil.rmtree(folder / str(old))


def newest_checkpoint(run: Path) -> Checkpoint | None:
    """The last complete state of a run, if there is one."""
    folder = run / "checkpoints"
    steps = _steps(folder) if folder.is_dir() else []
    if not steps:
        return None
    path = folder / str(steps[-1])
    try:
        state = msgspec.json.decode((path / "state.json").read_bytes(), type=_State)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(
            f"{path}: is damaged ({error}); delete it to resume from an older one"
        ) from None
    return Checkpoint(path, state.progress, state.environment)


def copy_checkpoint(start: Path, out: Path) -> None:
    """Begin the folder of a run with the newest checkpoint of another, its metrics and weights.

    Validations since the best one are counted anew.

    Raises:
        UserError: `start` has no checkpoint.
    """
    checkpoint = require_checkpoint(start)
    for name in ("metrics.jsonl", "model.safetensors"):
        write_file(out / name, (start / name).read_bytes())
    progress = msgspec.structs.replace(checkpoint.progress, checks_since_best=0)
    state = msgspec.json.encode(_State(progress, checkpoint.environment))
    files = {path.name: path.read_bytes() for path in checkpoint.path.iterdir()}
    (out / "checkpoints").mkdir(exist_ok=True)
    # Last: a folder without a checkpoint is begun again.
    write_folder(out / "checkpoints" / checkpoint.path.name, files | {"state.json": state})


def require_checkpoint(run: Path) -> Checkpoint:
    """Return the last complete state of a run.

    Raises:
        UserError: there is none.
    """
    checkpoint = newest_checkpoint(run)
    if checkpoint is None:
        raise UserError(
            f"{run}: has no checkpoint to continue from; for a new training with its weights, "
            "leave --steps out and set training.steps"
        )
    return checkpoint


def checkpoint_weights(run: Path) -> dict[int, Path]:
    """Return the weights of each checkpoint of a run, by step."""
    folder = run / "checkpoints"
    return {step: folder / str(step) / "model.safetensors" for step in _steps(folder)}


def load_optimizers(
    checkpoint: Checkpoint, optimizers: list[torch.optim.Optimizer], replica: Replica
) -> None:
    """Put optimizers into the state of a checkpoint."""
    tensors = read_tensors(checkpoint.path / "optimizer.safetensors")
    for number, optimizer in enumerate(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            owner, parameter, key = name.split(".")
            if int(owner) == number:
                own = replica.own_part(tensor, parameters[int(parameter)])
                state.setdefault(int(parameter), {})[key] = own
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})


def optimizer_tensors(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return optimizer.parameter.name → tensor, whole; all processes must call this."""
    return {
        f"{number}.{parameter}.{key}": gathered(value)
        for number, optimizer in enumerate(optimizers)
        for parameter, values in sorted(optimizer.state_dict()["state"].items())
        for key, value in sorted(values.items())  # the same order in all processes
    }


def _steps(folder: Path) -> list[int]:
    """The steps of the complete checkpoints; unfinished ones begin with a dot."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
