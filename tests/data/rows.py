"""Padded rows, read off position by position."""

from collections.abc import Sequence

from torch import Tensor


def assert_rows(
    tensor: Tensor, rows: Sequence[Sequence[int]], block: int, padding: int = 0
) -> None:
    """The tensor holds the rows, each filled up to a multiple of 4 that fits the block."""
    longest = max(map(len, rows))
    multiple = longest + -longest % 4
    assert tensor.shape == (len(rows), max(longest, min(multiple, block)))
    for found, row in zip(tensor.tolist(), rows, strict=True):
        assert found[: len(row)] == list(row)
        assert set(found[len(row) :]) <= {padding}
