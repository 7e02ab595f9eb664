"""What can be looked at: runs, and models that a user names otherwise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from regard.explorer.gradients import Gradient
from regard.explorer.looked_run import LookedRun
from regard.explorer.maps import Map
from regard.runs.run import Run

HUGGING_FACE = "hf:"
"""Begins the name of a model of Hugging Face; any other name is a run's folder."""


class Subject(Protocol):
    """A model that can be looked at while it reads."""

    @property
    def name(self) -> str:
        """What it is called beside others."""
        ...

    @property
    def room(self) -> int | None:
        """The most tokens of a text, beside those that stand around each; None has no limit."""
        ...

    @property
    def ordinary(self) -> Sequence[int]:
        """The ids of all tokens but the special ones."""
        ...

    def read(self, text: str, second: str | None = None) -> tuple[Map, ...]:
        """What its layers do with a text, or with two."""
        ...

    def read_ids(self, ids: Sequence[int]) -> tuple[Map, int]:
        """What its first stack does with tokens, and behind how many others they begin."""
        ...

    def gradients(self, text: str) -> Sequence[Gradient]:
        """How its loss on a text depends on each weight of its first stack, layer by layer."""
        ...

    def untrained(self) -> "Subject":
        """The same model before its training."""
        ...


def subject_of(model: Run | Subject) -> Subject:
    """A model as what can be looked at."""
    return LookedRun(model) if isinstance(model, Run) else model


def open_subject(name: str, *, device: torch.device, download: bool = False) -> Run | Subject:
    """The run in a folder; or with "hf:" before it, Hugging Face's model in a folder or the cache.

    Raises:
        UserError: there is none, or it can't be read.
    """
    if not name.startswith(HUGGING_FACE):
        return Run.load(Path(name), device=device)
    from regard.explorer.hugging_face import HuggingFaceModel

    return HuggingFaceModel.load(name.removeprefix(HUGGING_FACE), device=device, download=download)
