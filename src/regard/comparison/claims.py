"""Claims: of all attempts at a cell, only the newest one may write its folder. Knows no torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from filelock import FileLock

from regard.comparison.folder import Outcome, read_outcome
from regard.files import write_file


class StaleClaimError(Exception):
    """A newer attempt has claimed the cell; this one must not write."""


@dataclass(frozen=True)
class Claim:
    """The right of one attempt to write a cell's folder, until a newer attempt claims it.

    The check and the write that follows are one under a lock, so that an attempt that was paused
    between them can't write over a newer one.
    """

    cell: Path
    number: int

    @staticmethod
    def take(cell: Path) -> "Claim":
        """Claim a cell; from now on, earlier attempts write nothing."""
        with _publishing_lock(cell):
            number = newest_claim(cell) + 1
            write_file(cell / "claim", str(number).encode())
        return Claim(cell, number)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Hold the right to write.

        Raises:
            StaleClaimError: a newer attempt has it.
        """
        with _publishing_lock(self.cell):
            if newest_claim(self.cell) != self.number:
                raise StaleClaimError(f"{self.cell}: attempt {self.number} is stale")
            yield

    def publish(self, outcome: Outcome) -> None:
        """Write how the cell ended.

        Raises:
            StaleClaimError: a newer attempt has claimed the cell.
        """
        with self.publishing():
            write_file(self.cell / "outcome.json", msgspec.json.encode(outcome))


def give_up(cell: Path, reason: str) -> None:
    """Write that a cell failed, whose process can't say so itself; one that finished stays so."""
    claim = Claim.take(cell)
    if (outcome := read_outcome(cell)) and outcome.state != "failed":
        return
    claim.publish(Outcome(state="failed", attempt=claim.number, reason=reason))


def _publishing_lock(cell: Path) -> FileLock:
    return FileLock(cell / ".publishing.lock")


def newest_claim(cell: Path) -> int:
    """Return the number of the newest attempt; 0 if there was none."""
    claim = cell / "claim"
    return int(claim.read_text("ascii")) if claim.exists() else 0
