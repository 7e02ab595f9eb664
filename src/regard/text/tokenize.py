"""Texts of any size as token files: tokenizer, training and held-out tokens in one folder.

A token file is memory-mapped, so that a text of any size trains in little memory:
NAME.bin   the ids, little-endian, 16 or 32 bits each
NAME.json  their type and number
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Literal, overload

import msgspec
import numpy as np
from jaxtyping import Integer

from regard.errors import UserError
from regard.files import write_file
from regard.text.config import TokenizerConfig
from regard.text.corpus import Document
from regard.text.files import (
    COMPRESSED,
    Piece,
    TextFile,
    cut_pieces,
    inspect_all,
    inspect_file,
    read_pieces,
)
from regard.text.template import Template, TemplateConfig
from regard.text.tokenizer import Tokenizer, locate_unknown, train_tokenizer

SAMPLE_BYTES = 100_000_000
"""A tokenizer is trained on so much text at most."""
BATCH = 2**21
"""Characters that are encoded together."""
TOKEN_FORMAT = 1


# Token files


class _Header(msgspec.Struct, kw_only=True):
    """The content of NAME.json; later formats add fields."""

    format: int = TOKEN_FORMAT
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
    if header.format != TOKEN_FORMAT or ids.stat().st_size != header.tokens * dtype.itemsize:
        raise ValueError(f"{ids}: doesn't fit its header")
    if not header.tokens:  # an empty file can't be mapped
        return Tokens(np.empty(0, dtype)), header.documents
    return Tokens(np.memmap(ids, dtype, mode="r")), header.documents


# Texts


class TextSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the tokens of a text depend on."""

    files: tuple[TextFile, ...]
    documents: str
    text_field: str
    tokenizer: TokenizerConfig
    known: str | None = None
    """Fingerprint of a tokenizer that isn't trained on the text, if there is one."""
    template: TemplateConfig
    validation: float
    seed: int

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def fingerprint(self) -> str:
        """A hash of the contents and of how they are read; names of files don't matter."""
        files = [msgspec.structs.replace(file, path="", modified=0) for file in self.files]
        content = msgspec.json.encode(msgspec.structs.replace(self, files=tuple(files)))
        return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class TokenizedText:
    """A tokenizer, and the tokens of a text to train on and to validate with."""

    tokenizer: Tokenizer
    training: Tokens
    validation: Tokens
    documents: int


Advance = Callable[[str, int], None]
"""Reports progress: what is done, and how many more characters of the text it has read."""


def inspect_files(
    paths: Sequence[Path], folders: Sequence[Path], *, skip_bad: bool = False
) -> tuple[TextFile, ...]:
    """Inspect files; those unchanged since their tokens were written to a folder aren't read.

    Raises:
        UserError: a file can't be read or is no text, and isn't skipped.
    """
    specs = [_load_spec(folder) for folder in folders if _has_spec(folder)]
    known = {file.path: file for spec in specs for file in spec.files}
    return inspect_all(
        paths,
        lambda path: _unchanged(known.get(str(path)), path) or inspect_file(path),
        skip_bad=skip_bad,
        hint="; or leave such files out with --skip-bad",
    )


def _unchanged(known: TextFile | None, path: Path) -> TextFile | None:
    status = path.stat()
    same = known and known.modified == status.st_mtime_ns
    same_size = known and (path.suffix.lower() in COMPRESSED or known.size == status.st_size)
    return known if same and same_size else None


def tokenize_files(
    spec: TextSpec,
    folder: Path,
    advance: Advance,
    tokenizer: Tokenizer | None = None,
    source: Path | None = None,
) -> TokenizedText:
    """Return the tokens of a text from `folder`, after writing them if they aren't there.

    `tokenizer` is one that isn't trained on the text, `source` a folder that may have the same
    tokens.

    Raises:
        UserError: a document is malformed or can't be encoded.
    """
    if not has_tokens(spec, folder):
        if source and _has_same_tokens(spec, source):
            link_tokens(source, folder)
            write_file(folder / "text.json", msgspec.json.encode(spec))
        else:
            _write_tokens(spec, folder, advance, tokenizer)
    return load_tokens(folder)


def link_tokens(source: Path, target: Path) -> None:
    """Give a folder the tokens of another, by hard links where the disk has them."""
    unfinished = target.with_name(f".{target.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(source, unfinished, copy_function=_link)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _has_same_tokens(spec: TextSpec, folder: Path) -> bool:
    """Whether a folder holds a text with a known tokenizer, which may have been trained on it."""
    if spec.known is None or not _has_spec(folder):
        return False
    theirs = _load_spec(folder)
    theirs = msgspec.structs.replace(theirs, known=spec.known, tokenizer=spec.tokenizer)
    same_text = theirs.fingerprint == spec.fingerprint
    return same_text and Tokenizer.load(folder).fingerprint == spec.known


def load_tokens(folder: Path) -> TokenizedText:
    """Return the tokens in a folder; they are mapped, not read.

    Raises:
        UserError: a file is missing or damaged.
    """
    spec = _load_spec(folder)
    tokenizer = Tokenizer.load(folder)
    try:
        training, documents = open_tokens(folder / "training")
        validation, held_out = open_tokens(folder / "validation")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: is damaged ({error}); delete it") from None
    return split_few(tokenizer, training, validation, documents + held_out, spec.validation)


def tokenize_documents(
    documents: Sequence[Document],
    tokenizer: TokenizerConfig | Tokenizer,
    template: TemplateConfig,
    *,
    validation: float,
    seed: int,
) -> TokenizedText:
    """Return the tokens of documents in memory; a blank document has none.

    Raises:
        UserError: a document can't be encoded.
    """
    pieces = list(cut_pieces(Piece(document.text, True, document.where) for document in documents))
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = train_tokenizer(tokenizer, (piece.text for piece in pieces))
    separator = separator_of(Template(template, tokenizer))
    parts = list(encode_pieces(tokenizer, pieces, separator, held_out_documents(validation, seed)))
    training, held_out = (
        Tokens(np.array([i for part in parts for i in getattr(part, name)], dtype=np.uint32))
        for name in ("training", "validation")
    )
    return split_few(tokenizer, training, held_out, len(documents), validation)


def split_few(
    tokenizer: Tokenizer, training: Tokens, validation: Tokens, documents: int, share: float
) -> TokenizedText:
    """Hold out the end of the text where there are too few documents to hold out one."""
    if share and not validation:
        training, validation = training.split(len(training) - int(share * len(training)))
    return TokenizedText(
        tokenizer=tokenizer, training=training, validation=validation, documents=documents
    )


def _write_tokens(
    spec: TextSpec, folder: Path, advance: Advance, tokenizer: Tokenizer | None
) -> None:
    """Write a folder of tokens; it appears when it is complete."""
    unfinished = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        tokenizer = tokenizer or train_tokenizer(spec.tokenizer, sample_text(spec, advance))
        tokenizer.save(unfinished)
        separator = separator_of(Template(spec.template, tokenizer))
        size = tokenizer.size
        with (
            TokenWriter(unfinished / "training", size) as training,
            TokenWriter(unfinished / "validation", size) as validation,
        ):
            held_out = held_out_documents(spec.validation, spec.seed)
            parts = encode_pieces(tokenizer, pieces_of(spec), separator, held_out)
            for part in parts:
                training.append(part.training, documents=part.documents)
                validation.append(part.validation, documents=part.held_out)
                advance("tokens", part.characters)
        if training.tokens + validation.tokens < 2:
            raise UserError(f"{spec.files[0].path}: is too short to learn from")
        write_file(unfinished / "text.json", msgspec.json.encode(spec))
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):
            folder.parent.rmdir()  # empty after an error


def pieces_of(spec: TextSpec) -> Iterator[Piece]:
    return read_pieces(spec.files, spec.documents, spec.text_field)


def sample_text(spec: TextSpec, advance: Advance) -> Iterator[str]:
    """The text, or as many pieces of it, drawn by the seed, as a tokenizer is trained on."""
    draw, share = Random(f"{spec.seed} tokenizer"), SAMPLE_BYTES / max(spec.bytes, 1)
    for piece in pieces_of(spec):
        advance("tokenizer", len(piece.text))
        if share >= 1 or draw.random() < share:
            yield piece.text


def held_out_documents(share: float, seed: int) -> Callable[[int], bool]:
    """Return whether the document of an index is held out: one of each 1/share, by the seed.

    Of the first ones it is the last, so that none is where there are fewer.
    """
    size = max(round(1 / share), 2) if share else 0

    @lru_cache(maxsize=1)  # documents come in their order
    def place(block: int) -> int:
        return Random(f"{seed} {block}").randrange(size) if block else size - 1

    return (lambda index: place(index // size) == index % size) if share else lambda _: False


def separator_of(template: Template) -> list[int]:
    """Return the ids between two documents: the end of one and the beginning of the other."""
    before, behind = template.document.prefix, template.document.suffix
    return [*behind] if before == behind else [*behind, *before]


@dataclass(frozen=True, kw_only=True)
class EncodedPart:
    """Ids of a part of a text."""

    training: list[int]
    validation: list[int]
    documents: int
    """Number of documents for training that begin in it."""
    held_out: int
    characters: int


def encode_pieces(
    tokenizer: Tokenizer,
    pieces: Iterable[Piece],
    separator: Sequence[int],
    held_out: Callable[[int], bool],
) -> Iterator[EncodedPart]:
    """Encode documents in parallel, part by part, with the separator between them.

    Raises:
        UserError: names the place of what the vocabulary lacks.
    """
    index, begun = -1, {True: False, False: False}
    for batch in batch_pieces(pieces):
        rows = encode_batch(tokenizer, batch)
        ids: dict[bool, list[int]] = {True: [], False: []}
        counts = {True: 0, False: 0}
        for piece, row in zip(batch, rows, strict=True):
            index += piece.begins
            held = held_out(index)
            if piece.begins and begun[held]:
                ids[held] += separator
            ids[held] += row
            counts[held] += piece.begins
            begun[held] = True
        yield EncodedPart(
            training=ids[False],
            validation=ids[True],
            documents=counts[False],
            held_out=counts[True],
            characters=sum(len(piece.text) for piece in batch),
        )


def encode_batch(tokenizer: Tokenizer, batch: Sequence[Piece]) -> list[list[int]]:
    rows: list[list[int]] = [[]] * len(batch)
    for begins in (True, False):
        places = [i for i, piece in enumerate(batch) if piece.begins == begins]
        for place, row in zip(places, _rows(tokenizer, [batch[i] for i in places]), strict=True):
            rows[place] = row
    return rows


def _rows(tokenizer: Tokenizer, pieces: Sequence[Piece]) -> list[list[int]]:
    """The ids of pieces that all begin documents, or all continue them."""
    if not pieces:
        return []
    texts = [piece.text for piece in pieces]
    try:
        return tokenizer.encode_batch(texts, continuing=not pieces[0].begins)
    except UserError:
        for piece in pieces:
            with locate_unknown(piece.where):
                tokenizer.encode(piece.text)
        raise


def batch_pieces(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def has_tokens(spec: TextSpec, folder: Path) -> bool:
    """Return whether a folder holds the tokens of a text."""
    return _has_spec(folder) and _load_spec(folder).fingerprint == spec.fingerprint


def _has_spec(folder: Path) -> bool:
    return (folder / "text.json").is_file()


def _load_spec(folder: Path) -> TextSpec:
    """The description of a folder's tokens.

    Raises:
        UserError: it is damaged.
    """
    path = folder / "text.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=TextSpec)
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{path}: is damaged ({error}); delete {folder}") from None
