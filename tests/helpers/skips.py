"""Why tests were skipped."""

from collections import Counter
from collections.abc import Iterable

import pytest


def skipped_lines(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> list[str]:
    """Return a line for each reason, with the number of tests, the most frequent first."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in reports
        if isinstance(report.longrepr, tuple)
    )
    return [f"{n} skipped: {reason}" for reason, n in reasons.most_common()]
