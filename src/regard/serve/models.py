"""Runs in memory: loaded once, and the ones used last are kept."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from regard.errors import UserError
from regard.runs.run import Run
from regard.serve.failures import FailedError, reason
from regard.serve.offers import Offer

T = TypeVar("T")
KEPT = 4
"""Models in memory at once."""
log = logging.getLogger(__name__)


class Models:
    """The runs on offer. For one thread: looking hooks into a model."""

    def __init__(self, offers: Sequence[Offer], device: torch.device, kept: int = KEPT) -> None:
        self._offers, self._device, self._kept = offers, device, kept
        self._loaded: OrderedDict[int, Run] = OrderedDict()

    def use(self, number: int, job: Callable[[Run], T]) -> T:
        """What a job makes of a run.

        Raises:
            UserError: there is no such run, or it can't do what is asked.
            FailedError: the model fails.
        """
        with self.told(number):
            return job(self._run(number))

    @contextmanager
    def told(self, number: int) -> Iterator[None]:
        """Whatever goes wrong with a run in the with block is told in one line.

        Raises:
            UserError: there is no such run, or it can't do what is asked.
            FailedError: the model fails.
        """
        if number not in range(len(self._offers)):
            raise UserError("there is no such run; load this page again")
        one = self._offers[number]
        try:
            yield
        except UserError as error:
            raise UserError(reason(error, one)) from None
        except Exception as error:
            log.warning("%s failed", one.name, exc_info=error)
            raise FailedError(f"{one.name} failed: {reason(error, one)}") from None

    def _run(self, number: int) -> Run:
        """A run under its name, so that no title or message shows where it lies."""
        if number not in self._loaded:
            one = self._offers[number]
            run = Run.load(one.path, device=self._device)
            self._loaded[number] = replace(run, path=Path(one.name))
        self._loaded.move_to_end(number)
        while len(self._loaded) > self._kept:
            self._loaded.popitem(last=False)
        return self._loaded[number]
