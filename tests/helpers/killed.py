"""The death of a training process, within this one."""

from collections.abc import Callable
from typing import Any

import pytest

from regard.training import optimizers, step


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
