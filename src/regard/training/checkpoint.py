"""Checkpoints: the state of a training on disk, for exact resume."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec
import torch
from torch import Tensor

from regard.errors import UserError
from regard.files import (
    cleared_up,
    pack_tensors,
    publish,
    read_tensors,
    stage_folder,
    write_file,
    write_folder,
)
from regard.models.builders import merged_tensors, saved_tensors
from regard.runs.run import Run, pack_run_tensors
from regard.training.processes import Processes
from regard.training.replica import Replica, gathered

Publishing = Callable[[], AbstractContextManager[None]]
"""Returns a context in which this process may write to a run's folder; it may raise instead."""

KEPT = 2
"""Newest checkpoints that stay on disk by default."""
_BEST = "best.safetensors"
"""In a checkpoint until it becomes the run's model.safetensors."""


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


class CheckpointWriter:
    """Writes checkpoints in a thread, one at a time, while training continues.

    A checkpoint is written to a folder that only this attempt uses. The right to write is held only
    while that folder is renamed, so that the metrics don't wait for a long write.
    """

    def __init__(
        self, run: Run, processes: Processes, publishing: Publishing, newest: int, *, kept: int
    ) -> None:
        """Write to the folder of a run; `newest` is the step of its last checkpoint."""
        self._run, self._processes, self._publishing = run, processes, publishing
        self._newest, self._kept = newest, kept
        self._attempt = uuid4().hex
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread:
            self.finish()

    def save(
        self,
        replica: Replica,
        optimizers: Sequence[torch.optim.Optimizer],
        progress: Progress,
        environment: dict[str, str | int],
        *,
        best: bool,
    ) -> None:
        """Copy the state after `progress.step` steps, and write the copy in the background.

        The thread also publishes the weights as the run's, if they are the `best`, after the
        checkpoint, so that they never run ahead of the state that training resumes from. All
        processes must call this.

        Raises:
            OSError: the write before this one failed.
            StaleClaimError: a newer attempt has claimed the folder.
        """
        self.finish()
        if progress.step == self._newest:
            return
        self._newest, run = progress.step, self._run
        states = optimizer_tensors(optimizers)
        replica.collect()
        if not self._processes.is_first:
            return
        weights = saved_tensors(run.model)
        best = best or not (run.path / "model.safetensors").exists()
        merged = merged_tensors(run.model) if best else {}
        copies = {
            name: tensor.detach().to("cpu", copy=True)
            for name, tensor in (weights | merged | states).items()
        }

        def files() -> Iterator[tuple[str, bytes]]:
            yield "model.safetensors", pack_run_tensors(run, {x: copies[x] for x in weights})
            yield "optimizer.safetensors", pack_tensors({x: copies[x] for x in states})
            if merged:
                yield _BEST, pack_run_tensors(run, {x: copies[x] for x in merged})
            yield "state.json", msgspec.json.encode(_State(progress, environment))

        self._pending = self._thread.submit(self._write, progress.step, files())

    def finish(self) -> None:
        """Wait for the write that is under way.

        Raises:
            OSError: it failed.
            StaleClaimError: a newer attempt has claimed the folder.
        """
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, step: int, files: Iterable[tuple[str, bytes]]) -> None:
        folder = self._run.path / "checkpoints"
        target, staged = folder / str(step), folder / f".{step}.{self._attempt}.partial"
        try:
            with cleared_up(staged, target):
                stage_folder(staged, files)
                with self._publishing():
                    publish(staged, target)
                    publish_best(target, self._run.path)
                    for old in _steps(folder)[: -self._kept]:
                        shutil.rmtree(folder / str(old))
        except OSError:
            with self._publishing():  # raises where a newer attempt has removed the files
                raise


def publish_best(checkpoint: Path, run: Path) -> None:
    """Make the best weights of a checkpoint those of the run, unless that is done."""
    if (checkpoint / _BEST).exists():
        publish(checkpoint / _BEST, run / "model.safetensors")


def remove_unfinished(run: Path) -> None:
    """Delete what earlier attempts, which can't publish any more, have left."""
    for path in (run / "checkpoints").glob(".*.partial"):
        shutil.rmtree(path, ignore_errors=True)


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


def optimizer_tensors(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, Tensor]:
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
