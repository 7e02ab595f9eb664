"""Checkpoints are written while training continues, and read in parts."""

import errno
import json
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from plans import plan_task
from refusals import refusal
from regard import files
from regard.errors import UserError
from regard.files import remove_unfinished
from regard.runs.claim import Claim, StaleClaimError
from regard.runs.run import Run
from regard.training.checkpoint import (
    CheckpointWriter,
    Progress,
    load_optimizers,
    newest_checkpoint,
    require_checkpoint,
    require_intact,
)
from regard.training.optimizers import make_optimizers
from regard.training.processes import LostProcessError, Processes
from regard.training.replica import Replica
from tiny_tasks import task_recipe

SHARDING = "DCP_SHARDING_INFO"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = plan_task(tmp_path / "run", task_recipe("casing", "decoder")).run
    run.path.mkdir()
    return run


def trained(run: Run) -> list[torch.optim.Optimizer]:
    """Optimizers with the state of one step."""
    optimizers = make_optimizers(run.model, run.recipe.training)
    generator = torch.Generator().manual_seed(0)
    for parameter in run.model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    for optimizer in optimizers:
        optimizer.step()
    return optimizers


def writer_of(
    run: Run, publishing: Callable[[], AbstractContextManager[None]] = nullcontext, newest: int = 0
) -> CheckpointWriter:
    """A writer of the state after one step."""
    replica = Replica(run.model, Processes())
    return CheckpointWriter(run, replica, trained(run), {}, publishing, newest, kept=2)


def saved(run: Run, steps: int = 1) -> Path:
    """Save checkpoints, and return the newest."""
    with writer_of(run) as writer:
        for step in range(1, steps + 1):
            writer.save(Progress(step=step))
    return run.path / "checkpoints" / str(steps)


def load(run: Run) -> list[torch.optim.Optimizer]:
    """Optimizers with the state of the newest checkpoint."""
    optimizers = make_optimizers(run.model, run.recipe.training)
    load_optimizers(require_checkpoint(run.path), optimizers)
    return optimizers


def blocked_writes(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let writes in the background wait until the event is set."""
    proceed, write = threading.Event(), files._write

    def wait_and_write(path: Path, data: bytes) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert proceed.wait(30)
        write(path, data)

    monkeypatch.setattr(files, "_write", wait_and_write)
    return proceed


def test_training_continues_while_a_checkpoint_is_written(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written is the state at the call, and another writer may publish meanwhile."""
    claim = Claim.take(run.path / "checkpoints")
    proceed, writer = blocked_writes(monkeypatch), writer_of(run, claim.publishing)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    with writer:
        writer.save(Progress(step=1))
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.zero_()
        with claim.publishing():  # as the metrics do
            assert newest_checkpoint(run.path) is None
        proceed.set()
    for folder in (run.path, run.path / "checkpoints/1"):
        written = load_file(folder / "model.safetensors")
        assert all(torch.equal(before[name], tensor) for name, tensor in written.items())


def test_a_failure_of_the_writer_is_raised_by_the_next_save_and_at_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(errno.ENOSPC, "No space left")
    monkeypatch.setattr(files, "_write", Mock(side_effect=full))
    writer = writer_of(run)
    writer.save(Progress(step=1))
    with pytest.raises(OSError, match="No space left") as failure:
        writer.save(Progress(step=2))
    assert failure.value.filename == str(run.path / "checkpoints/1")
    writer.save(Progress(step=3))
    with pytest.raises(OSError, match="No space left"), writer:
        pass
    assert list((run.path / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("error", [LostProcessError("process 1 ended"), KeyboardInterrupt()])
def test_a_lost_process_or_a_second_ctrl_c_does_not_wait_for_a_write(
    error: BaseException, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun kills this process 30 seconds after the other one has ended.

    Where nobody does, the write ends before Python does: nothing is left to mend.
    """
    proceed, writer = blocked_writes(monkeypatch), writer_of(run)

    def train() -> None:
        with writer:
            writer.save(Progress(step=1))
            raise error

    with pytest.raises(type(error)):
        train()
    assert newest_checkpoint(run.path) is None
    proceed.set()
    writer._thread.shutdown()
    assert require_checkpoint(run.path).progress.step == 1
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["1"]


def test_a_stale_attempt_publishes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the newer attempt removes the files that it has begun to write."""
    folder = run.path / "checkpoints"
    proceed = blocked_writes(monkeypatch)
    writer = writer_of(run, Claim.take(folder).publishing)
    writer.save(Progress(step=1))
    Claim.take(folder)
    remove_unfinished(run.path / "checkpoints")
    proceed.set()
    with pytest.raises(StaleClaimError, match="attempt 1 is stale"), writer:
        pass
    assert newest_checkpoint(run.path) is None
    assert not (run.path / "model.safetensors").exists()


def test_what_a_killed_attempt_left_is_removed(run: Run) -> None:
    left = run.path / "checkpoints/.3.some-attempt.partial"
    left.mkdir(parents=True)
    (left / "model.safetensors").touch()
    remove_unfinished(run.path / "checkpoints")
    assert list((run.path / "checkpoints").iterdir()) == []


def test_an_old_checkpoint_in_use_is_removed_later(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, remove = run.path / "checkpoints", os.rmdir

    def in_use(path: Any, **options: Any) -> None:
        if Path(path).name == "1":
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        remove(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", in_use)
        saved(run, 3)
    assert (folder / "1").exists()
    with writer_of(run, newest=3) as writer:
        writer.save(Progress(step=4))
    assert sorted(path.name for path in folder.iterdir()) == ["3", "4"]


# Parts of the optimizers' state


def states(optimizers: list[torch.optim.Optimizer]) -> dict[tuple[int, int, str], torch.Tensor]:
    return {
        (number, parameter, key): value
        for number, optimizer in enumerate(optimizers)
        for parameter, values in optimizer.state_dict()["state"].items()
        for key, value in values.items()
    }


def split(path: Path, parts: int) -> None:
    """Rewrite the file of one process as those of several, each with the rows of torch.chunk."""
    with safe_open(path / "optimizer.safetensors", "pt") as file:
        assert SHARDING in file.metadata()
    whole = load_file(path / "optimizer.safetensors")
    for rank in range(parts):
        own, offsets = {}, {}
        for name, tensor in whole.items():
            rows = tensor.chunk(parts) if tensor.ndim else (tensor,)
            if rank < len(rows):
                own[name] = rows[rank].clone()
                before = [sum(map(len, rows[:rank])), *[0] * (tensor.ndim - 1)]
                offsets[name] = {"saved_offsets": before if tensor.ndim else []}
        file_name = f"optimizer-{rank}.safetensors" if rank else "optimizer.safetensors"
        save_file(own, path / file_name, {SHARDING: json.dumps(offsets)})


@pytest.mark.parametrize("parts", [1, 2, 3, 40])
def test_the_state_of_any_number_of_processes_is_read(parts: int, run: Run) -> None:
    """More processes than rows included, where some hold no part of a tensor."""
    split(saved(run), parts)
    found, expected = states(load(run)), states(trained(run))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_missing_part_is_found(run: Run) -> None:
    path = saved(run)
    split(path, 3)
    for lost in ("optimizer.safetensors", "optimizer-1.safetensors", "optimizer-2.safetensors"):
        part = (path / lost).rename(path / "lost")
        with refusal(UserError, r"checkpoints/1: is damaged \(a part of .* is missing", lost):
            load(run)
        part.rename(path / lost)


def test_a_flipped_bit_stops_resuming(run: Run) -> None:
    """Training went on with other weights, without a word."""
    names = ("model.safetensors", "optimizer.safetensors", "state.json", "sha256.json")
    says = r"checkpoints/2: is damaged .* resume from .*points/1"
    folder = saved(run, steps=2)
    for path, place in product([folder / name for name in names], [0.1, 0.5, 0.99]):
        whole = path.read_bytes()
        data = bytearray(whole)
        data[int(place * len(data))] ^= 1
        path.write_bytes(data)
        with refusal(UserError, says, f"{path.name} at {place}"):
            require_intact(require_checkpoint(run.path))
        path.write_bytes(whole)
    require_intact(require_checkpoint(run.path))


def test_damaged_and_missing_files_are_named(run: Run) -> None:
    file = saved(run) / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match="checkpoints/1: is damaged"):
        load(run)
    file.unlink()
    with pytest.raises(UserError, match="the state of the optimizers is missing"):
        load(run)
