"""Errors that each case of a loop has to raise."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def refusal(
    error: type[Exception], says: str, case: object = None
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """`pytest.raises`, which names the case, by default the message, where nothing is raised."""
    with pytest.raises(error, match=says) as raised:  # noqa: PT012
        yield raised
        pytest.fail(f"nothing is raised: {says if case is None else case}")
