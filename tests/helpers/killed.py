"""The death of a process that trains or writes, within this one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard import files
from regard.errors import UserError
from regard.training import optimizers, step
from regard.training.plan import Plan
from tiny_tasks import SETTINGS


class Killed(BaseException):
    """Stands for the death of the process: nothing catches it."""


def kill_in_step(number: int, train: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, and be killed before a step changes the weights."""
    original = optimizers.clip_gradients

    def killing(*args: Any) -> float:
        if args[3] == number:
            raise Killed
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(step, "clip_gradients", killing)
        with pytest.raises(Killed):
            train()


def kill_in_writing(
    name: str, write: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write, and be killed before a file or folder of this name is in its place."""
    original = files.publish

    def killing(temporary: Path, path: Path) -> None:
        if path.name == name:
            raise Killed
        original(temporary, path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "publish", killing)
        with pytest.raises(Killed):
            write()


def require_repeatable(
    write: Callable[[Path], object], last: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Create `out` in an empty folder, and be killed at each of three places, the file `last`, too.

    The next attempt replaces what is left; a whole result, or what another process writes, is left
    alone.
    """
    out = folder / "out"
    for place in ("model.safetensors", last, "out"):
        kill_in_writing(place, lambda: write(out), monkeypatch)
        assert not out.exists()
    with files.held_alone(out), pytest.raises(UserError, match="is writing it; wait"):
        write(out)
    write(out)
    assert list(folder.iterdir()) == [out]
    with pytest.raises(UserError, match="exists; choose another --out"):
        write(out)


def require_exact_resume(
    make: Callable[[Path], Plan], folder: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Train in `whole`, and in `run` with a death in a step; return the folder of the latter."""
    make(folder / "whole").execute(SETTINGS)
    killed = make(folder / "run")
    kill_in_step(number, lambda: killed.execute(SETTINGS), monkeypatch)
    make(folder / "run").execute(SETTINGS, resume=True)
    whole, resumed = (load_file(folder / name / "model.safetensors") for name in ("whole", "run"))
    assert whole.keys() == resumed.keys()
    # Exact: the same operations on the same shapes.
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    return folder / "run"
