"""Comparisons of few rows, trained in this process."""

from collections.abc import Iterator

import pytest

from regard.comparison import scheduler
from tiny_comparisons import run_here


@pytest.fixture(scope="module", autouse=True)
def in_this_process() -> Iterator[None]:
    """Tests of worker processes call them by themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "run_locally", run_here)
        patch.setattr("regard.training.sources.probe.PROBE_ROWS", 100)
        yield
