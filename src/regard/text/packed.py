"""Packed corpora: the token ids of documents in files that are mapped into memory.

A folder holds the tokenizer and, for the documents to train on and the held-out ones:
NAME.bin      the ids of all documents, one after another, little-endian, 16 or 32 bits each
NAME.starts   the place of the first id of each document, little-endian, 64 bits each
packed.json   what was packed and how, and the sizes of these files; written last
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from jaxtyping import Integer

from regard.errors import UserError
from regard.text.files import PACKED
from regard.text.tokenize import TextSpec
from regard.text.tokenizer import Tokenizer

PACKED_FORMAT = 1
Split: TypeAlias = Literal["training", "validation"]
SPLITS: tuple[Split, Split] = ("training", "validation")
CHECKED = 2**24
"""Ids of a split that are checked at most when it is opened, evenly spaced."""


class Size(msgspec.Struct, kw_only=True):
    """The sizes of a split."""

    tokens: int = 0
    documents: int = 0


class Sizes(msgspec.Struct, kw_only=True):
    """The sizes of both splits."""

    training: Size = msgspec.field(default_factory=Size)
    validation: Size = msgspec.field(default_factory=Size)


class Header(msgspec.Struct, kw_only=True):
    """The content of packed.json; later formats add fields."""

    format: int = PACKED_FORMAT
    dtype: Literal["<u2", "<u4"]
    vocabulary: int
    """Number of ids of the tokenizer."""
    tokenizer: str
    """Fingerprint of the tokenizer."""
    sizes: Sizes
    spec: TextSpec

    @property
    def fingerprint(self) -> str:
        """A hash of the contents, of how they were read, and of the tokenizer."""
        return msgspec.structs.replace(self.spec, known=self.tokenizer).fingerprint


@dataclass(frozen=True, eq=False)
class DocumentTokens:
    """The ids of documents, one after another, and where each document begins."""

    ids: Integer[np.ndarray, " tokens"]
    starts: Integer[np.ndarray, " documents"]
    vocabulary: int
    """Number of ids of the tokenizer."""
    path: Path

    @property
    def lengths(self) -> Integer[np.ndarray, " documents"]:
        """Number of ids of each document."""
        return np.diff(self.starts, append=len(self.ids))


@dataclass(frozen=True, kw_only=True)
class PackedCorpus:
    """A packed corpus: its tokenizer, and the documents to train on and to validate with."""

    path: Path
    header: Header
    tokenizer: Tokenizer
    training: DocumentTokens
    validation: DocumentTokens


def is_packed(path: Path) -> bool:
    """Return whether a folder holds a packed corpus."""
    return (path / PACKED).is_file()


def find_corpora(path: Path) -> list[Path]:
    """Return a packed corpus, or the packed corpora in a folder; hidden ones are unfinished."""
    if is_packed(path):
        return [path]
    inside = sorted(path.iterdir()) if path.is_dir() else []
    return [one for one in inside if is_packed(one) and not one.name.startswith(".")]


def read_header(path: Path) -> Header:
    """Return the header of a packed corpus.

    Raises:
        UserError: it is missing, damaged or of another format.
    """
    file = path / PACKED
    try:
        header = msgspec.json.decode(file.read_bytes(), type=Header)
    except OSError:
        raise UserError(f"{path}: is no packed corpus; make one by regard pack") from None
    except msgspec.DecodeError as error:
        raise UserError(f"{file}: is damaged ({error}); pack the corpus again") from None
    if header.format != PACKED_FORMAT:
        raise UserError(f"{file}: has format {header.format}, not {PACKED_FORMAT}; pack it again")
    return header


def open_packed(path: Path) -> PackedCorpus:
    """Map a packed corpus into memory.

    Raises:
        UserError: a file is missing, cut short, has ids beyond the vocabulary, or the tokenizer is
            another one.
    """
    header = read_header(path)
    tokenizer = Tokenizer.load(path)
    if tokenizer.fingerprint != header.tokenizer:
        raise UserError(
            f"{path}: the tokenizer isn't the one that the corpus was packed with; restore "
            "tokenizer.json, or pack the corpus again"
        )
    training, validation = (_open_split(path, name, header) for name in SPLITS)
    return PackedCorpus(
        path=path, header=header, tokenizer=tokenizer, training=training, validation=validation
    )


def _open_split(path: Path, name: Split, header: Header) -> DocumentTokens:
    size: Size = getattr(header.sizes, name)
    ids = _map(path / f"{name}.bin", header.dtype, size.tokens)
    starts = _map(path / f"{name}.starts", "<i8", size.documents)
    if len(starts) and not (starts[0] == 0 and starts[-1] <= len(ids) and _ascending(starts)):
        raise UserError(f"{path}/{name}.starts: is damaged; pack the corpus again")
    for block in _spread_blocks(ids):
        require_vocabulary(block, header.vocabulary, path / f"{name}.bin")
    return DocumentTokens(ids, starts, header.vocabulary, path / f"{name}.bin")


def _ascending(starts: Integer[np.ndarray, " documents"]) -> bool:
    return bool((starts[1:] >= starts[:-1]).all())


def _map(path: Path, dtype: str, count: int) -> np.ndarray:
    expected = count * np.dtype(dtype).itemsize
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; pack the corpus again") from None
    if size != expected:
        raise UserError(f"{path}: has {size:,} bytes, not {expected:,}; pack the corpus again")
    # An empty file can't be mapped.
    return np.memmap(path, dtype, mode="r") if count else np.empty(0, dtype)


def _spread_blocks(ids: np.ndarray) -> list[np.ndarray]:
    """All ids if there are few, or else blocks of them, evenly spaced."""
    if len(ids) <= CHECKED:
        return [ids]
    size = CHECKED // 64
    return [ids[start : start + size] for start in np.linspace(0, len(ids) - size, 64, dtype=int)]


def require_vocabulary(ids: np.ndarray, vocabulary: int, path: Path) -> None:
    """Raise for ids that a tokenizer of so many doesn't have.

    Raises:
        UserError: names the file and the id.
    """
    highest = int(ids.max(initial=0))
    if highest >= vocabulary:
        raise UserError(
            f"{path}: holds the id {highest}, but the tokenizer has {vocabulary} ids; pack the "
            "corpus again"
        )
