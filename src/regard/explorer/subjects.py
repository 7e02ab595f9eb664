"""What a user names as a model to look at."""

from pathlib import Path

import torch

from regard.explorer.look import Subject
from regard.runs.run import Run

HUGGING_FACE = "hf:"
"""Begins the name of a model of Hugging Face; any other name is a run's folder."""


def open_subject(name: str, *, device: torch.device, download: bool = False) -> Run | Subject:
    """The run in a folder; or with "hf:" before it, Hugging Face's model in a folder or the cache.

    Raises:
        UserError: there is none, or it can't be read.
    """
    if not name.startswith(HUGGING_FACE):
        return Run.load(Path(name), device=device)
    from regard.explorer.hugging_face import HuggingFaceModel

    return HuggingFaceModel.load(name.removeprefix(HUGGING_FACE), device=device, download=download)
