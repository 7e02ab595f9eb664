"""One thread for all work of models, first come, first served.

Torch spreads a single piece of work over all cores by itself; and a model that is looked at carries
hooks, which must not see another request's work.
"""

from asyncio import wrap_future
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from regard.serve.failures import BusyError, StoppedError

T = TypeVar("T")
PLACES = 512
"""Requests that may wait at once."""


class Worker:
    """Does one thing after another. To be asked from one event loop."""

    def __init__(self, places: int = PLACES) -> None:
        self._thread = ThreadPoolExecutor(1, "models")
        self._free = places
        self._stopped = False

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the queue.

        Raises:
            BusyError: all are taken.
        """
        if self._free <= 0:
            raise BusyError("too many requests wait already; try again in a moment")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1

    async def do(self, job: Callable[[], T]) -> T:
        """The job's result, when its turn has come.

        Raises:
            StoppedError: the server goes away.
        """
        return await wrap_future(self._thread.submit(self._unless_stopped, job))

    def stop(self) -> None:
        """Let nothing more begin. A signal's handler may call this: it takes no lock."""
        self._stopped = True

    def _unless_stopped(self, job: Callable[[], T]) -> T:
        if self._stopped:
            raise StoppedError("the server was stopped")
        return job()
