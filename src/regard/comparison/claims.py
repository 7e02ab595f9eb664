"""How the attempt that has claimed a cell says how it ended. Knows no torch."""

from pathlib import Path

import msgspec

from regard.comparison.folder import Outcome, read_outcome
from regard.files import write_file
from regard.runs.claim import Claim


def publish(claim: Claim, outcome: Outcome) -> None:
    """Write how a cell ended.

    Raises:
        StaleClaimError: a newer attempt has claimed the cell.
    """
    with claim.publishing():
        write_file(claim.folder / "outcome.json", msgspec.json.encode(outcome))


def give_up(cell: Path, reason: str) -> None:
    """Write that a cell failed, whose process can't say so itself; one that finished stays so."""
    claim = Claim.take(cell)
    if (outcome := read_outcome(cell)) and outcome.state != "failed":
        return
    publish(claim, Outcome(state="failed", attempt=claim.number, reason=reason))
