"""Claims: only the newest attempt to train in a folder may write. Imports no torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from regard.errors import RegardError, UserError
from regard.files import write_file


class StaleClaimError(RegardError):
    """A newer attempt has claimed the folder."""


@dataclass(frozen=True)
class Claim:
    """The right of one attempt to write to a folder, until a newer attempt claims it.

    Check and write are done under one lock, so that an attempt that was paused between them can't
    overwrite the files of a newer one.
    """

    folder: Path
    number: int

    @staticmethod
    def take(folder: Path) -> "Claim":
        """Claim a folder; from now on, earlier attempts write nothing."""
        folder.mkdir(exist_ok=True)
        with _publishing_lock(folder):
            number = newest_claim(folder) + 1
            write_file(folder / "claim", str(number).encode())
        return Claim(folder, number)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Check the claim, and hold the lock while writing.

        Raises:
            StaleClaimError: a newer attempt has claimed the folder.
        """
        with _publishing_lock(self.folder):
            newest = newest_claim(self.folder)
            if newest != self.number:
                raise StaleClaimError(
                    f"{self.folder}: attempt {self.number} is stale, {newest} trains here"
                )
            yield


def newest_claim(folder: Path) -> int:
    """Return the number of the newest attempt; 0 without one.

    Raises:
        UserError: the file is damaged.
    """
    claim = folder / "claim"
    if not claim.exists():
        return 0
    text = claim.read_text("ascii", "replace")
    if not (text.isdecimal() and len(text) < 20):
        raise UserError(f"{claim}: is damaged; delete it if no other process trains there")
    return int(text)


def _publishing_lock(folder: Path) -> FileLock:
    return FileLock(folder / ".publishing.lock")
