"""Checkpoints: the state of a training on disk, for exact resume."""

import shutil
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors import SafetensorError
from torch import Tensor

from regard.errors import UserError
from regard.files import (
    changed_file,
    cleared_up,
    decode_json,
    errors_name,
    new_folder,
    pack_tensors,
    publish,
    stage_folder,
    sums_of,
    to_json,
    write_file,
)
from regard.models.tensors import merged_tensors, saved_tensors
from regard.runs.run import Run, pack_run_tensors
from regard.training.processes import StoppedElsewhere, is_lost
from regard.training.replica import Replica

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

Publishing = Callable[[], AbstractContextManager[None]]
"""Returns a context in which this process may write to a run's folder; it may raise instead."""

KEPT = 2
"""Number of newest checkpoints that stay on disk by default."""
_BEST = "best.safetensors"
"""In a checkpoint until it becomes the run's model.safetensors."""
_SUMS = "sha256.json"
"""The sha256 of each other file of a checkpoint."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a training. Random numbers need no state: all depend on (seed, step)."""

    step: int = 0
    """Steps done."""
    tokens: int = 0
    """Positions seen, padding included."""
    operations: int | None = None
    """Floating-point operations; None if there was a step in which they weren't counted."""
    seconds: float = 0.0
    """Time spent."""
    losses: tuple[float, ...] = ()
    """Losses of the steps since the last line of metrics."""
    best_loss: float | None = None
    """Lowest validation loss so far."""
    best_step: int = 0
    """Step of the lowest validation loss; without validation, of the last checkpoint."""
    checks_since_best: int = 0
    """Number of validations since the best step."""


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
        self,
        run: Run,
        replica: Replica,
        optimizers: Sequence[torch.optim.Optimizer],
        environment: dict[str, str | int],
        publishing: Publishing,
        newest: int,
        *,
        kept: int,
    ) -> None:
        """Write to the folder of a run; `newest` is the step of its last checkpoint."""
        self._run, self._replica, self._optimizers = run, replica, optimizers
        self._environment, self._publishing = environment, publishing
        self._newest, self._kept, self._processes = newest, kept, replica.processes
        self._attempt, self._abandoned = self._processes.next_name(), threading.Event()
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[None] | None = None

    def __enter__(self) -> "CheckpointWriter":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Finish the write, unless a process was lost: torchrun soon kills the other processes."""
        waits = error is None or not (isinstance(error, KeyboardInterrupt) or is_lost(error))
        try:
            if error is None:
                self.finish()
            elif waits:
                with suppress(StoppedElsewhere):
                    self._wait()
        finally:
            self._abandoned.set()
            self._thread.shutdown(wait=waits)

    def save(self, progress: Progress) -> None:
        """Copy the state after `progress.step` steps, and write the copy in the background.

        The thread also publishes the weights as the run's, if they are the best, after the
        checkpoint, so that they never run ahead of the state that training resumes from. All
        processes must call this.

        Raises:
            OSError: the write before this one failed.
            StaleClaimError: a newer attempt has claimed the folder.
        """
        self.finish()
        if progress.step == self._newest:
            return
        self._newest = progress.step
        files = _own_optimizer_file(self._replica, self._optimizers)
        self._replica.collect()
        if self._processes.is_first:
            best = progress.best_loss is None or progress.best_step == progress.step
            best = best or not (self._run.path / "model.safetensors").exists()
            files |= _weight_files(self._run, best=best)
            state = msgspec.json.encode(_State(progress, self._environment))
            files["state.json"] = lambda: state
        self._pending = self._thread.submit(self._write, progress.step, files)

    def finish(self) -> None:
        """Wait for the write in progress.

        Raises:
            OSError: it failed.
            StaleClaimError: a newer attempt has claimed the folder.
        """
        try:
            self._wait()
        except StoppedElsewhere:
            raise self._processes.stopped_elsewhere() from None

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, step: int, files: Mapping[str, Callable[[], bytes]]) -> None:
        folder = self._run.path / "checkpoints"
        target, staged = folder / str(step), folder / f".{step}.{self._attempt}.partial"
        packed = ((name, pack()) for name, pack in files.items())
        is_first, in_step = self._processes.is_first, self._processes.in_step
        name = f"{self._attempt}/{step}"
        try:
            with cleared_up(staged, target) if is_first else errors_name(target):
                with in_step(f"{name}/staged", self._abandoned):
                    if files:
                        stage_folder(staged, packed)
                with in_step(f"{name}/published", self._abandoned):
                    if is_first:
                        self._publish(staged, target)
        except OSError:
            with self._publishing():  # raises where a newer attempt has removed the files
                raise

    def _publish(self, staged: Path, target: Path) -> None:
        _save_sums(staged)
        with self._publishing():
            publish(staged, target)
            publish_best(target, self._run.path)
            for old in _steps(target.parent)[: -self._kept]:
                # One that another program has open is removed after the next checkpoint.
                shutil.rmtree(target.parent / str(old), ignore_errors=True)


def _save_sums(checkpoint: Path) -> None:
    files = [path for path in checkpoint.iterdir() if path.name not in (_BEST, _SUMS)]
    sums = sums_of(sorted(files))
    write_file(checkpoint / _SUMS, to_json(sums))


def _weight_files(run: Run, *, best: bool) -> dict[str, Callable[[], bytes]]:
    """Copy the weights, and return how to pack the files of a checkpoint that hold them."""
    files = {"model.safetensors": saved_tensors(run.model)}
    if best:
        files[_BEST] = merged_tensors(run.model)
    copies = _copies({name: x for tensors in files.values() for name, x in tensors.items()})
    return {
        file: partial(pack_run_tensors, run, {name: copies[name] for name in tensors})
        for file, tensors in files.items()
    }


def _own_optimizer_file(
    replica: Replica, optimizers: Sequence[torch.optim.Optimizer]
) -> dict[str, Callable[[], bytes]]:
    """Copy this process's part of the optimizers, and return how to pack its file, if any.

    The format is that of torch.distributed.checkpoint.HuggingFaceStorageWriter, which can't write
    the parts of a tensor without pickled messages between the processes.
    """
    rank = replica.processes.rank
    own = {
        f"optimizer.{number}.{parameter}.{key}": rows
        for number, optimizer in enumerate(optimizers)
        for parameter, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
        if (rows := replica.own_rows(value)) is not None
    }
    if not own:
        return {}
    offsets = {
        name: {"saved_offsets": [before, *[0] * (rows.ndim - 1)][: rows.ndim]}
        for name, (before, rows) in own.items()
    }
    metadata = {"DCP_SHARDING_INFO": msgspec.json.encode(offsets).decode()}
    copies = _copies({name: rows for name, (_, rows) in own.items()})
    file = f"optimizer-{rank}.safetensors" if rank else "optimizer.safetensors"
    return {file: partial(pack_tensors, copies, metadata)}


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def publish_best(checkpoint: Path, run: Path) -> None:
    """Move the best weights of a checkpoint to the run, unless they were moved before."""
    if (checkpoint / _BEST).exists():
        publish(checkpoint / _BEST, run / "model.safetensors")


def newest_checkpoint(run: Path) -> Checkpoint | None:
    """Return the newest complete checkpoint of a run, if any; only its state.json is read.

    Raises:
        UserError: it is damaged.
    """
    folder = run / "checkpoints"
    steps = _steps(folder) if folder.is_dir() else []
    if not steps:
        return None
    path = folder / str(steps[-1])
    try:
        state = decode_json((path / "state.json").read_bytes(), _State)
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    return Checkpoint(path, state.progress, state.environment)


def require_intact(checkpoint: Checkpoint) -> None:
    """Raise unless the files of a checkpoint are as they were written.

    Raises:
        UserError: names the file, and the checkpoint to resume from instead.
    """
    try:
        sums = decode_json((checkpoint.path / _SUMS).read_bytes(), dict[str, str])
    except (OSError, ValueError) as error:
        raise _damaged(checkpoint.path, str(error)) from None
    changed = changed_file(checkpoint.path, sums)
    if changed is not None:
        raise _damaged(checkpoint.path, f"{changed.name} has changed since it was written")


def copy_checkpoint(start: Path, out: Path) -> None:
    """Start the folder of a run with the newest checkpoint, metrics and weights of another run.

    The count of validations since the best one restarts.

    Raises:
        UserError: `start` has no checkpoint.
    """
    checkpoint = require_checkpoint(start)
    require_intact(checkpoint)
    for name in ("metrics.jsonl", "model.safetensors"):
        if (start / name).exists():  # metrics may have been deleted
            write_file(out / name, (start / name).read_bytes())
    progress = msgspec.structs.replace(checkpoint.progress, checks_since_best=0)
    state = msgspec.json.encode(_State(progress, checkpoint.environment))
    files = {path.name: path.read_bytes() for path in checkpoint.path.iterdir()}
    # Last: a folder without a checkpoint is begun again.
    with new_folder(out / "checkpoints" / checkpoint.path.name) as staged:
        stage_folder(staged, (files | {"state.json": state}).items())
        _save_sums(staged)


def require_checkpoint(run: Path) -> Checkpoint:
    """Return the newest complete checkpoint of a run.

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


def load_optimizers(checkpoint: Checkpoint, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Load the state of optimizers from a checkpoint; each process reads its part.

    Raises:
        UserError: files are damaged or missing.
    """
    # Here, as they take half a second to import
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(checkpoint.path))
    try:
        saved: dict[str, Any] = reader.read_metadata().state_dict_metadata
    except SafetensorError as error:
        raise _damaged(checkpoint.path, str(error)) from None
    parameters = [[p for group in o.param_groups for p in group["params"]] for o in optimizers]
    states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimizers]
    values = {}
    for name in filter(lambda name: name.startswith("optimizer."), saved):
        _, number, index, key = name.split(".")
        value = _empty_like(saved[name], parameters[int(number)][int(index)])
        if value is None:
            raise _damaged(checkpoint.path, f"a part of {name} is missing")
        values[name] = states[int(number)].setdefault(int(index), {})[key] = value
    if not values:
        raise _damaged(checkpoint.path, "the state of the optimizers is missing")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that each process reads without the others
        load(values, storage_reader=reader, no_dist=True)
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})


def _empty_like(saved: "TensorStorageMetadata", parameter: Tensor) -> Tensor | None:
    """Return a tensor for a parameter's saved state, sharded alike; None if parts are missing."""
    dtype = saved.properties.dtype
    if sum(part.sizes.numel() for part in saved.chunks) != saved.size.numel():
        return None
    if saved.size == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    return None if saved.size else torch.empty((), dtype=dtype)


def _damaged(path: Path, reason: str) -> UserError:
    older = [step for step in _steps(path.parent) if step < int(path.name)]
    then = f"resume from {path.with_name(str(older[-1]))}" if older else "begin again"
    return UserError(f"{path}: is damaged ({reason}); delete it to {then}")


def _steps(folder: Path) -> list[int]:
    """Return the steps of complete checkpoints; names of unfinished ones begin with a dot."""
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
