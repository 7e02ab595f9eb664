"""The death of a training process, within this one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

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
