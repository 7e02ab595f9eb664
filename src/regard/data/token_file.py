"""Token files: ids on disk, memory-mapped, so that a text of any size trains in little memory.

NAME.bin   the ids, little-endian, 16 or 32 bits each
NAME.json  their type and number
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, overload

import msgspec
import numpy as np
from jaxtyping import Integer

from regard.files import write_file

FORMAT = 1


class _Header(msgspec.Struct, kw_only=True):
    """The content of NAME.json; later formats add fields."""

    format: int = FORMAT
    dtype: Literal["<u2", "<u4"]
    tokens: int
    documents: int


class Tokens(Sequence[int]):
    """The ids of a text as a sequence; a slice is a list."""

    def __init__(self, ids: Integer[np.ndarray, " tokens"]) -> None:
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        found: int | list[int] = self._ids[place].tolist()
        return found

    def split(self, place: int) -> tuple["Tokens", "Tokens"]:
        """Return the tokens before a place, and the others; nothing is copied."""
        return Tokens(self._ids[:place]), Tokens(self._ids[place:])


class TokenWriter:
    """Writes a token file, part by part; the header comes last."""

    def __init__(self, path: Path, vocabulary: int) -> None:
        """`path` has no suffix; `vocabulary` is the number of ids."""
        self._path, self.tokens, self._documents = path, 0, 0
        self._dtype: Literal["<u2", "<u4"] = "<u2" if vocabulary <= 2**16 else "<u4"
        self._file = path.with_suffix(".bin").open("wb")

    def append(self, ids: Sequence[int], *, documents: int) -> None:
        """Write ids, in which so many documents begin."""
        self._file.write(np.array(ids, dtype=self._dtype).tobytes())
        self.tokens += len(ids)
        self._documents += documents

    def __enter__(self) -> "TokenWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        if error is None:
            header = _Header(dtype=self._dtype, tokens=self.tokens, documents=self._documents)
            write_file(self._path.with_suffix(".json"), msgspec.json.encode(header))


def open_tokens(path: Path) -> tuple[Tokens, int]:
    """Map a token file into memory; return its tokens and the number of its documents.

    Raises:
        OSError: a file is missing.
        ValueError: the files don't fit together, or are of another format.
    """
    header = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=_Header)
    ids, dtype = path.with_suffix(".bin"), np.dtype(header.dtype)
    if header.format != FORMAT or ids.stat().st_size != header.tokens * dtype.itemsize:
        raise ValueError(f"{ids}: doesn't fit its header")
    if not header.tokens:  # an empty file can't be mapped
        return Tokens(np.empty(0, dtype)), header.documents
    return Tokens(np.memmap(ids, dtype, mode="r")), header.documents
