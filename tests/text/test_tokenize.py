"""Token files: what is written is what is read."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.tokenize import Tokens, TokenWriter, open_tokens


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "training"


@given(
    parts=st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=8), max_size=5),
    vocabulary=st.sampled_from([2**16, 2**16 + 1]),
)
def test_what_is_written_is_read(path: Path, parts: list[list[int]], vocabulary: int) -> None:
    with TokenWriter(path, vocabulary) as writer:
        for part in parts:
            writer.append(part, documents=2)
    tokens, documents = open_tokens(path)
    written = [i for part in parts for i in part]
    assert tokens[:] == list(tokens) == written
    assert len(tokens) == len(written)
    assert documents == 2 * len(parts)
    width = 2 if vocabulary == 2**16 else 4
    assert path.with_suffix(".bin").stat().st_size == width * len(written)


def test_large_ids_survive(path: Path) -> None:
    with TokenWriter(path, 200_000) as writer:
        writer.append([0, 199_999], documents=1)
    assert open_tokens(path)[0][:] == [0, 199_999]


def test_a_split_has_all_tokens() -> None:
    first, second = Tokens(np.arange(10)).split(7)
    assert (first[:], second[:]) == ([*range(7)], [7, 8, 9])


def test_a_torn_file_is_refused(path: Path) -> None:
    with TokenWriter(path, 10) as writer:
        writer.append([1, 2, 3], documents=1)
    path.with_suffix(".bin").write_bytes(b"\0")
    with pytest.raises(ValueError, match="doesn't fit its header"):
        open_tokens(path)
