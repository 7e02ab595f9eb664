"""One thread that runs all models, first come, first served.

Torch uses all cores for one request. Capturing attention hooks into a model, so no other request
may run it at the same time.
"""

from asyncio import wrap_future
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from regard.serve.errors import BusyError, ShutdownError

T = TypeVar("T")
QUEUE_SIZE = 512
"""Largest number of queued requests."""


class Worker:
    """Run one job after another. For use from one event loop."""

    def __init__(self, queue_size: int = QUEUE_SIZE) -> None:
        self._thread = ThreadPoolExecutor(1, "models")
        self._free = queue_size
        self._stopped = False

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold a place in the queue.

        Raises:
            BusyError: the queue is full.
        """
        if self._free <= 0:
            raise BusyError("too many requests are waiting; try again in a moment")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1

    async def run(self, job: Callable[[], T]) -> T:
        """Return the job's result once its turn has come.

        Raises:
            ShutdownError: the server is shutting down.
        """
        return await wrap_future(self._thread.submit(self._unless_stopped, job))

    def stop(self) -> None:
        """Start no more jobs. Safe in a signal handler: it takes no lock."""
        self._stopped = True

    def _unless_stopped(self, job: Callable[[], T]) -> T:
        if self._stopped:
            raise ShutdownError("the server was stopped")
        return job()
