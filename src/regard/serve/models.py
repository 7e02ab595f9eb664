"""Models in memory: loaded once, and the ones used last are kept."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from regard.errors import UserError
from regard.explorer.look import untrained
from regard.explorer.subjects import Subject
from regard.runs.run import Run
from regard.serve.failures import FailedError, reason
from regard.serve.offers import HuggingFaceOffer, Offer

T = TypeVar("T")
KEPT = 4
"""Models in memory at once."""
log = logging.getLogger(__name__)


class Which(NamedTuple):
    """A model, by its number among those on offer."""

    number: int
    untrained: bool = False
    """As it was before its training."""


class Models:
    """The models on offer. For one thread: looking hooks into a model."""

    def __init__(self, offers: Sequence[Offer], device: torch.device, kept: int = KEPT) -> None:
        self._offers, self._device, self._kept = offers, device, kept
        self._loaded: OrderedDict[Which, Run | Subject] = OrderedDict()

    def use(self, which: Which, job: Callable[[Run | Subject], T]) -> T:
        """What a job makes of a model.

        Raises:
            UserError: there is no such model, or it can't do what is asked.
            FailedError: the model fails.
        """
        with self.told(which.number):
            return job(self._model(which))

    @contextmanager
    def told(self, number: int) -> Iterator[None]:
        """Whatever goes wrong with a model in the with block is told in one line.

        Raises:
            UserError: there is no such model, or it can't do what is asked.
            FailedError: the model fails.
        """
        if number not in range(len(self._offers)):
            raise UserError("there is no such model; load this page again")
        one = self._offers[number]
        try:
            yield
        except UserError as error:
            raise UserError(reason(error, one)) from None
        except Exception as error:
            log.warning("%s failed", one.name, exc_info=error)
            raise FailedError(f"{one.name} failed: {reason(error, one)}") from None

    def _model(self, which: Which) -> Run | Subject:
        if which not in self._loaded:
            number, fresh = which
            self._loaded[which] = (
                untrained(self._model(Which(number)))
                if fresh
                else _load(self._offers[number], self._device)
            )
        self._loaded.move_to_end(which)
        while len(self._loaded) > self._kept:
            self._loaded.popitem(last=False)
        return self._loaded[which]


def _load(one: Offer, device: torch.device) -> Run | Subject:
    """A model under its name, so that no title or message shows where it lies."""
    if not isinstance(one, HuggingFaceOffer):
        return replace(Run.load(one.path, device=device), path=Path(one.name))
    from regard.explorer.hugging_face import HuggingFaceModel

    return replace(HuggingFaceModel.load(one.path, device=device), name=one.name)
