"""Errors that each case of a loop has to raise."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusal(error: type[Exception], says: str, case: object = None) -> Iterator[None]:
    """`pytest.raises`, which names the case, by default the message, where nothing is raised."""
    with pytest.raises(error, match=says):  # noqa: PT012
        yield
        pytest.fail(f"nothing is raised: {says if case is None else case}")
