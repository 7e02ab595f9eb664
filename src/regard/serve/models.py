"""Models in memory: each loaded once, the least recently used evicted."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import torch

from regard.errors import UserError
from regard.explorer.adapters import HUGGING_FACE, Adapter
from regard.explorer.look import open_run, untrained
from regard.runs.run import Run
from regard.serve.available_models import AvailableHuggingFaceModel, AvailableModel
from regard.serve.errors import ModelFailedError, public_message

T = TypeVar("T")
CACHED = 4
"""Largest number of models in memory."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelKey:
    """An index into the available models, trained or untrained."""

    index: int
    untrained: bool = False
    editable: bool = False
    """Whether a Hugging Face model is imported as a run."""


class ModelCache:
    """The most recently used models. For one thread: capturing attention hooks into a model."""

    def __init__(
        self, available: Sequence[AvailableModel], device: torch.device, size: int = CACHED
    ) -> None:
        self._available, self._device = available, device
        self._get = lru_cache(size)(self._load)

    def use(self, key: ModelKey, job: Callable[[Run | Adapter], T]) -> T:
        """Call a function with a model.

        Raises:
            UserError: the model doesn't exist or doesn't support the request.
            ModelFailedError: the model failed.
        """
        with self.public_errors(key.index):
            is_run = not isinstance(self._available[key.index], AvailableHuggingFaceModel)
            key = replace(key, editable=False) if is_run else key
            return job(self._get(key, self._changed(key.index)))

    @contextmanager
    def public_errors(self, index: int) -> Iterator[None]:
        """Turn any error of a model into one line that the page may show.

        Raises:
            UserError: the model doesn't exist or doesn't support the request.
            ModelFailedError: the model failed.
        """
        if index not in range(len(self._available)):
            raise UserError("no such model; reload this page")
        model = self._available[index]
        try:
            yield
        except UserError as error:
            raise UserError(public_message(error, model)) from None
        except Exception as error:
            log.warning("%s failed", model.name, exc_info=error)
            message = public_message(error, model)
            raise ModelFailedError(f"{model.name} failed: {message}") from None

    def _changed(self, index: int) -> int:
        """Return when the weights of a model were written; 0 if they aren't in one file."""
        with suppress(OSError):
            return (self._available[index].path / "model.safetensors").stat().st_mtime_ns
        return 0

    def _load(self, key: ModelKey, changed: int) -> Run | Adapter:
        """Load a model under its name, so that no title or message shows its path.

        Weights `changed` at another time are another model, which is loaded again.
        """
        if key.untrained:
            return untrained(self._get(replace(key, untrained=False), changed))
        model, device = self._available[key.index], self._device
        if not isinstance(model, AvailableHuggingFaceModel):
            return replace(Run.load(model.path, device=device), path=Path(model.name))
        if key.editable:
            run = open_run(f"{HUGGING_FACE}{model.path}", device=device)
            return replace(run, path=Path(model.name))
        from regard.explorer.huggingface.adapter import HuggingFaceModel

        return replace(HuggingFaceModel.load(model.path, device=device), name=model.name)
