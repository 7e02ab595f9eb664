"""Checkpoints: the state of training on disk, for exact resume."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from regard.errors import UserError
from regard.files import write_folder
from regard.runs.run import Run, load_weights, pack_tensors, pack_weights, read_tensors

KEPT = 2


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
    optimizers: list[torch.optim.Optimizer],
    progress: Progress,
    environment: dict[str, str | int],
) -> None:
    """Write the state after `progress.step` steps, then let go of older ones."""
    folder = run.path / "checkpoints"
    folder.mkdir(exist_ok=True)
    target = folder / str(progress.step)
    if not target.exists():
        write_folder(
            target,
            {
                "model.safetensors": pack_weights(run),
                "optimizer.safetensors": pack_tensors(_optimizer_tensors(optimizers)),
                "state.json": msgspec.json.encode(_State(progress, environment)),
            },
        )
    for old in _steps(folder)[:-KEPT]:
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


def load_checkpoint(
    checkpoint: Checkpoint, run: Run, optimizers: list[torch.optim.Optimizer]
) -> None:
    """Put model and optimizers into the state of a checkpoint."""
    load_weights(checkpoint.path / "model.safetensors", run)
    tensors = read_tensors(checkpoint.path / "optimizer.safetensors")
    for number, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            owner, parameter, key = name.split(".")
            if int(owner) == number:
                state.setdefault(int(parameter), {})[key] = tensor
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})


def _optimizer_tensors(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """optimizer.parameter.name → tensor."""
    return {
        f"{number}.{parameter}.{key}": value
        for number, optimizer in enumerate(optimizers)
        for parameter, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
    }


def _steps(folder: Path) -> list[int]:
    """The steps of the complete checkpoints; unfinished ones begin with a dot."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
