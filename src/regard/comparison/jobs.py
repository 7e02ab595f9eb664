"""Cells as cluster jobs: each job gets the path of a cell and writes its results there.

A job that ends without an outcome is submitted again. The new attempt claims the cell, so a job
that the cluster has lost track of can no longer write.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from regard.comparison.executors import ATTEMPTS
from regard.comparison.folder import give_up, read_outcome
from regard.errors import UserError
from regard.runs.claim import newest_claim

POLL_SECONDS = 0.5
"""Seconds between two checks of the jobs."""
REFUSED_SECONDS = 60
"""Seconds until a refused job is submitted again."""


class Job(Protocol):
    """A job of a cluster."""

    def has_ended(self) -> bool:
        """Return whether the job is neither running nor queued."""

    def reason(self) -> str:
        """Return the reason why the job ended without an outcome."""

    def cancel(self) -> None:
        """Cancel the job."""


@dataclass(frozen=True)
class _Attempt:
    cell: Path
    number: int
    claimed: int
    """Number of the cell's newest claim before the job was submitted."""
    job: Job

    def has_outcome(self) -> bool:
        """Whether the cell has ended; a failure of an earlier attempt does not count."""
        outcome = read_outcome(self.cell)
        if outcome is None:
            return False
        return outcome.state != "failed" or outcome.attempt > self.claimed


def _split(attempts: Sequence[_Attempt]) -> tuple[list[_Attempt], list[_Attempt]]:
    """Split attempts into those whose jobs are queued or running, and those that have ended."""
    parts: tuple[list[_Attempt], list[_Attempt]] = [], []
    for attempt in attempts:
        parts[attempt.job.has_ended()].append(attempt)
    return parts


def run_in_jobs(
    cells: Sequence[Path], submit: Callable[[Path], Job], *, at_once: int
) -> Generator[Path, None, None]:
    """Submit cells, at most `at_once` queued or running; yield each that has ended.

    Raises:
        UserError: a job is refused while no other one is queued or running.
    """
    waiting = deque((cell, 1) for cell in cells)
    running: list[_Attempt] = []
    not_before = 0.0  # no job is submitted until then
    try:
        while waiting or running:
            if waiting and len(running) < at_once and time.monotonic() >= not_before:
                cell, number = waiting[0]
                try:
                    running.append(_Attempt(cell, number, newest_claim(cell), submit(cell)))
                    waiting.popleft()
                except UserError:  # by a limit of jobs, or a cluster that is busy
                    if not running:
                        raise
                    not_before = time.monotonic() + REFUSED_SECONDS
            else:
                time.sleep(POLL_SECONDS)
            running, ended = _split(running)
            for attempt in ended:
                if attempt.has_outcome():
                    yield attempt.cell
                elif attempt.number < ATTEMPTS:
                    waiting.append((attempt.cell, attempt.number + 1))
                else:
                    give_up(attempt.cell, f"{attempt.job.reason()}, {ATTEMPTS} times")
                    yield attempt.cell
    finally:
        for attempt in running:
            attempt.job.cancel()
