"""Packed corpora: the token ids of documents in files that are mapped into memory.

`regard pack` and `regard train text` write them. A folder holds the tokenizer and, for the
documents to train on and the held-out ones:
NAME.bin      the ids of all documents, one after another, little-endian, 16 or 32 bits each
NAME.starts   the place of the first id of each document, little-endian, 64 bits each
packed.json   what was packed and how, sizes and checksums of these files; written last

`TextSpec` holds everything that the tokens depend on; `DocumentTokens.rows` and `Splits.streams`
make datasets of them, which import torch.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import numpy as np
from jaxtyping import Integer
from msgspec.structs import force_setattr

from regard.data import REPACK, require_vocabulary
from regard.errors import UserError
from regard.files import changed_file, decode_json, fingerprint_of, publish
from regard.text.config import TokenizerConfig
from regard.text.corpus import Piece, detect_documents, read_pieces
from regard.text.files import (
    COMPRESSED,
    PACKED,
    TextFile,
    find_files,
    has_records,
    inspect_all,
    inspect_file,
    path_exists,
    visible_texts,
)
from regard.text.template import Template
from regard.text.tokenizer import FILES as TOKENIZER_FILES
from regard.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # processes that pack need no torch
    from regard.data.batch import RowFormat
    from regard.data.packing import PackedDocuments
    from regard.data.windows import TokenStream

PACKED_FORMAT = 2
Split: TypeAlias = Literal["training", "validation"]
SPLITS: tuple[Split, Split] = ("training", "validation")
TOKEN_FILES = tuple(f"{name}.{kind}" for name in SPLITS for kind in ("bin", "starts"))
FILES = (*TOKENIZER_FILES, *TOKEN_FILES, PACKED)
"""The files of a packed corpus; the header comes last."""
CHECKED = 2**24
"""Largest number of ids of a split that are checked when it is opened, evenly spaced."""
SAMPLE_BYTES = 100_000_000
"""Largest size of the text on which a tokenizer is trained."""

Advance: TypeAlias = Callable[[str, int], None]
"""Reports progress: a stage, and the number of characters that it has read since its last call."""


class TextSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the tokens of a text depend on."""

    files: tuple[TextFile, ...] = ()
    documents: str
    """Kind of documents; "auto" until the files are read."""
    text_field: str
    tokenizer: TokenizerConfig
    known: str | None = None
    """Fingerprint of a tokenizer that isn't trained on the text, if there is one."""
    validation: float
    seed: int

    def __post_init__(self) -> None:
        force_setattr(self, "validation", float(self.validation))  # 0 and 0.0 are one fingerprint

    @property
    def kinds(self) -> list[str]:
        """Kinds of documents in the files; JSONL and Parquet always hold records."""
        found = {"records" if has_records(file.path) else self.documents for file in self.files}
        return sorted(found, key=lambda kind: kind == "records")

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A hash of the contents and of the settings to read them; names of files don't matter."""
        files = [msgspec.structs.replace(file, path="", modified=0) for file in self.files]
        content = msgspec.json.encode(msgspec.structs.replace(self, files=tuple(files)))
        return fingerprint_of(content)

    def require_records(self) -> None:
        """Raise for a chosen field of records if no file holds any.

        Raises:
            UserError: names the first file.
        """
        if "records" not in self.kinds:
            raise UserError(
                f"{self.files[0].path}: has no records with a field {self.text_field!r}; leave "
                "--text out, or convert the text to JSONL or Parquet"
            )

    def pieces(self) -> Iterator[Piece]:
        """Yield the documents of the text, long ones in pieces."""
        return read_pieces(self.files, self.documents, self.text_field)

    def sample(self, advance: Advance) -> Iterator[Piece]:
        """Yield the text to train a tokenizer on: all of it, or pieces drawn by the seed.

        All of it if the tokenizer raises for text that it wasn't trained on.
        """
        draw, share = Random(f"{self.seed} tokenizer"), SAMPLE_BYTES / max(self.bytes, 1)
        if getattr(self.tokenizer, "unknown", None) == "error":
            share = 1
        for piece in self.pieces():
            advance("tokenizer", len(piece.text))
            if share >= 1 or draw.random() < share:
                yield piece


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
    sums: dict[str, str]
    """The sha256 of each of these files."""
    spec: TextSpec

    @property
    def fingerprint(self) -> str:
        """A hash of the contents, of the settings to read them, and of the tokenizer."""
        return msgspec.structs.replace(self.spec, known=self.tokenizer).fingerprint


def held_out_documents(share: float, seed: int) -> Callable[[int], bool]:
    """Return whether the document of an index is held out, as a function of the index.

    Of every 1/share documents one is held out, drawn by the seed; of the first 1/share it is the
    last, so that shorter corpora have none.
    """
    n, size = Fraction(share).limit_denominator(10**9).as_integer_ratio()  # n of each `size`

    @lru_cache(maxsize=1)  # documents come in their order
    def place(block: int) -> int:
        start, end = (-(-number * size // n) for number in (block, block + 1))
        return start + Random(f"{seed} {block}").randrange(end - start) if block else end - 1

    return (lambda index: place(index * n // size) == index) if n else lambda _: False


@dataclass(frozen=True, eq=False)
class DocumentTokens:
    """The ids of documents, one after another, and where each document begins.

    They are mapped from files, or in memory.
    """

    ids: Integer[np.ndarray, " tokens"]
    starts: Integer[np.ndarray, " documents"]
    vocabulary: int
    """Number of ids of the tokenizer."""
    path: Path

    @property
    def lengths(self) -> Integer[np.ndarray, " documents"]:
        """Number of ids of each document."""
        return np.diff(self.starts, append=len(self.ids))

    def rows(self, template: Template, format: "RowFormat", *, packing: bool) -> "PackedDocuments":
        """Return rows of the documents, each with the affixes of the template around it."""
        from regard.data.packing import PackedDocuments

        around = template.document
        return PackedDocuments(
            self.ids,
            self.starts,
            format.whole_rows,
            packing=packing,
            prefix=around.prefix,
            suffix=around.suffix,
            vocabulary=self.vocabulary,
            path=self.path,
        )


@dataclass(frozen=True, kw_only=True)
class Splits:
    """A tokenizer, and the documents to train on and to validate with."""

    tokenizer: Tokenizer
    training: DocumentTokens
    validation: DocumentTokens

    @property
    def documents(self) -> int:
        """Number of documents."""
        return len(self.training.starts) + len(self.validation.starts)

    def streams(self, template: Template, share: float) -> "tuple[TokenStream, TokenStream]":
        """Return streams to train on and to validate with, documents joined by a separator.

        Where there are too few documents to hold out one, the end of the text is held out: a
        `share` of its tokens.
        """
        from regard.data.windows import TokenStream

        training, validation = (
            TokenStream(part.ids, part.starts, template.separator)
            for part in (self.training, self.validation)
        )
        if share and not len(validation):
            return training.split(len(training) - int(share * len(training)))
        return training, validation


@dataclass(frozen=True, kw_only=True)
class PackedCorpus(Splits):
    """A packed corpus."""

    path: Path
    header: Header


def is_packed(path: Path) -> bool:
    """Return whether a folder holds a packed corpus."""
    return (path / PACKED).is_file()


def packed_from(spec: TextSpec, folder: Path) -> Header | None:
    """Return the header of a folder, if it was packed by this spec."""
    header = read_header(folder) if is_packed(folder) else None
    return header if header and header.spec.fingerprint == spec.fingerprint else None


def read_spec(
    spec: TextSpec,
    paths: Sequence[Path],
    folders: Sequence[Path],
    *,
    skip_bad: bool = False,
    hint: str = "",
) -> TextSpec:
    """Return a spec with the files of paths, and with their documents if these are "auto".

    Files that are unchanged since they were packed to one of the folders aren't read.

    Raises:
        UserError: a file can't be read or isn't text, and isn't skipped.
    """
    specs = [read_header(folder).spec for folder in folders if is_packed(folder)]
    known = {file.path: file for spec in specs for file in spec.files}
    files = inspect_all(
        find_files(paths),
        lambda path: _unchanged(known.get(str(path)), path) or _inspect_named(path),
        skip_bad=skip_bad,
        hint=hint,
    )
    documents = detect_documents(files) if spec.documents == "auto" else spec.documents
    return msgspec.structs.replace(spec, files=files, documents=documents)


def _inspect_named(path: Path) -> TextFile:
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:  # it can't be written to packed.json and origin.json
        raise UserError(f"{path}: its name isn't valid UTF-8; rename it") from None
    return inspect_file(path)


def _unchanged(known: TextFile | None, path: Path) -> TextFile | None:
    status = path.stat()
    same = known and known.modified == status.st_mtime_ns
    same_size = known and (path.suffix.lower() in COMPRESSED or known.size == status.st_size)
    return known if same and same_size else None


def remove_corpus(folder: Path) -> None:
    """Delete a packed or unfinished corpus, the header first: a kill leaves none that seems whole.

    A link and what it leads to stay.
    """
    if not folder.is_symlink():
        with suppress(OSError):  # there is none
            (folder / PACKED).unlink()
        shutil.rmtree(folder, ignore_errors=True)


def link_corpus(source: Path, target: Path) -> None:
    """Copy a packed corpus to a folder, by hard links where the disk supports them.

    The header comes last: by it, `pack_corpus` recognizes a complete folder of the same name.
    """
    target = target.resolve()  # a link's target is replaced, not the link
    unfinished = target.with_name(f".{target.name}.partial")
    remove_corpus(unfinished)
    unfinished.mkdir(parents=True)  # with its own permissions, as the source may be read-only
    for name in FILES:
        if (source / name).exists():  # others are missed when the corpus is opened
            _link(str(source / name), str(unfinished / name))
    if is_packed(target):  # which a link leads to
        remove_corpus(target)
    publish(unfinished, target)


def _link(source: str, target: str) -> None:
    try:
        os.link(os.path.realpath(source), target)  # of a link, its file: links may be relative
    except OSError:
        shutil.copyfile(source, target)


def find_corpora(path: Path) -> list[Path]:
    """Return a packed corpus, or the packed corpora in a folder; hidden ones are unfinished.

    Raises:
        UserError: the folder has packed corpora and other texts.
    """
    if path_exists(path) and is_packed(path):
        return [path]
    inside = sorted(path.iterdir()) if path.is_dir() else []
    corpora = [one for one in inside if is_packed(one) and not one.name.startswith(".")]
    for text in visible_texts(path) if corpora else ():
        if not any(corpus in text.parents for corpus in corpora):
            raise UserError(
                f"{path}: has packed corpora and other texts, such as {text.relative_to(path)}; "
                "name the corpora themselves, or pack all texts"
            )
    return corpora


def read_header(path: Path) -> Header:
    """Return the header of a packed corpus.

    Raises:
        UserError: it is missing, damaged or of another format.
    """
    file = path / PACKED
    try:
        header = decode_json(file.read_bytes(), Header)
    except OSError:
        raise UserError(f"{path}: is no packed corpus; make one by regard pack") from None
    except ValueError as error:
        raise UserError(f"{file}: is damaged ({error}); {REPACK}") from None
    if header.format != PACKED_FORMAT:
        raise UserError(f"{file}: has format {header.format}, not {PACKED_FORMAT}; {REPACK}")
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
            f"tokenizer.json, or {REPACK}"
        )
    training, validation = (_open_split(path, name, header) for name in SPLITS)
    return PackedCorpus(
        path=path, header=header, tokenizer=tokenizer, training=training, validation=validation
    )


def require_intact(corpus: PackedCorpus) -> None:
    """Raise unless the files of a packed corpus are as they were written; reads all of them.

    Raises:
        UserError: names the first that isn't.
    """
    changed = changed_file(corpus.path, corpus.header.sums)
    if changed is not None:
        raise UserError(f"{changed}: has changed since it was written; {REPACK}")


def _open_split(path: Path, name: Split, header: Header) -> DocumentTokens:
    size: Size = getattr(header.sizes, name)
    ids = _map(path / f"{name}.bin", header.dtype, size.tokens)
    starts = _map(path / f"{name}.starts", "<i8", size.documents)
    ascends = (starts[1:] >= starts[:-1]).all()
    if len(starts) and not (starts[0] == 0 and starts[-1] <= len(ids) and ascends):
        raise UserError(f"{path}/{name}.starts: is damaged; {REPACK}")
    for block in _spread_blocks(ids):
        require_vocabulary(block, header.vocabulary, path / f"{name}.bin")
    return DocumentTokens(ids, starts, header.vocabulary, path / f"{name}.bin")


def _map(path: Path, dtype: str, count: int) -> np.ndarray:
    expected = count * np.dtype(dtype).itemsize
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise UserError(f"{path}: is missing; {REPACK}") from None
    if size != expected:
        raise UserError(f"{path}: has {size:,} bytes, not {expected:,}; {REPACK}")
    # An empty file can't be mapped.
    return np.memmap(path, dtype, mode="r") if count else np.empty(0, dtype)


def _spread_blocks(ids: np.ndarray) -> list[np.ndarray]:
    """Return all ids if they are few, or else evenly spaced blocks of them."""
    if len(ids) <= CHECKED:
        return [ids]
    size = CHECKED // 64
    return [ids[start : start + size] for start in np.linspace(0, len(ids) - size, 64, dtype=int)]
