"""One thing after another, and an end to the queue."""

import asyncio
import threading
from contextlib import suppress
from functools import partial

import pytest

from regard.serve.errors import BusyError, ShutdownError
from regard.serve.worker import Worker


def test_jobs_are_done_in_turn_by_one_thread() -> None:
    worker, seen, running = Worker(), list[int](), list[int]()

    def job(number: int) -> int:
        running.append(number)
        assert running == [number], "nothing else is under way"
        seen.append(threading.get_ident())
        return running.pop()

    async def ask() -> list[int]:
        return await asyncio.gather(*(worker.run(partial(job, i)) for i in range(50)))

    assert asyncio.run(ask()) == list(range(50))
    assert len(set(seen)) == 1


def test_a_full_queue_says_so_and_empties() -> None:
    """After a failure, too."""
    worker = Worker(queue_size=2)
    for fails in (True, False, False):
        with suppress(ZeroDivisionError), worker.slot(), worker.slot():
            with pytest.raises(BusyError, match="try again"), worker.slot():
                pass
            if fails:
                raise ZeroDivisionError


def test_a_stopped_worker_begins_nothing() -> None:
    worker, begun = Worker(), threading.Event()
    go_on = threading.Event()

    def slow() -> str:
        begun.set()
        go_on.wait(10)
        return "done"

    async def ask() -> list[str | BaseException]:
        asked = [asyncio.ensure_future(worker.run(slow)) for _ in range(3)]
        await asyncio.to_thread(begun.wait, 10)
        worker.stop()
        go_on.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    first, *others = asyncio.run(ask())
    assert first == "done", "what was begun is finished"
    assert all(isinstance(other, ShutdownError) for other in others)
