"""Documents of text files, whole or in pieces of bounded size."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from regard.errors import UserError
from regard.files import decode_json, exists
from regard.text.files import (
    TextFile,
    content_suffix,
    decoded,
    find_files,
    has_records,
    inspect_all,
    inspect_file,
    open_parquet,
    open_text,
    parquet_rows,
)

PIECE = 2**16
"""Smallest number of characters of a piece, unless its document is shorter."""
BATCH = 2**21
"""Smallest number of characters that are encoded together, unless the text is shorter."""


class Piece(NamedTuple):
    """A document, or a part of one."""

    text: str
    begins: bool
    """Whether a document begins here."""
    where: str


@dataclass(frozen=True)
class Document:
    """A text and its place, for messages."""

    text: str
    where: str
    """file:line, or the file alone."""


Corpus: TypeAlias = str | Path | Sequence[Path] | Sequence[str] | Sequence[Document]
"""A file or folder, several of them, or the documents themselves."""


def detect_documents(files: Sequence[TextFile]) -> str:
    """Return the kind of documents in these files, detected from a sample of them.

    JSONL and Parquet files always hold records. Other files: lines if no line is blank, paragraphs
    if blank lines separate single lines, and otherwise whole files, in which line ends are part of
    the text.
    """
    plain = [file for file in files if not has_records(file.path)]
    if not plain:
        return "records"
    chosen = plain[:: -(-len(plain) // 16)]
    lines: list[str] = []
    for file in chosen:
        with open_text(file) as opened:
            lines += opened.read(PIECE).split("\n")[:-1]
    blank = [not line.strip() for line in lines]
    if len(lines) - sum(blank) < 2 * len(chosen):
        return "files"
    if not any(blank):
        return "lines"
    in_blocks = sum(not (a or b) for a, b in pairwise(blank))
    return "paragraphs" if in_blocks < 0.05 * (len(lines) - sum(blank)) else "files"


def read_pieces(
    files: Iterable[TextFile], documents: str, field: str = "text", size: int = PIECE
) -> Iterator[Piece]:
    """Return the documents of files, long ones in pieces that begin with a word.

    `documents` is lines, files, paragraphs or records, whose text is in `field`; JSONL and
    Parquet always hold records.

    Raises:
        UserError: a record is malformed or lacks the field, or pyarrow is missing for Parquet.
    """
    for file in files:
        if content_suffix(file.path) == ".parquet":
            parts = _parquet(file, field)
        elif documents == "records" or has_records(file.path):
            parts = _records(file, field)
        else:
            parts = _PARTS[documents](file, size)
        yield from cut_pieces(parts, size)


def cut_pieces(parts: Iterable[Piece], size: int = PIECE) -> Iterator[Piece]:
    """Cut documents, given in parts, into pieces of size..2·size characters; drop blank ones.

    A piece begins with the space or line end before a word, or else with a punctuation mark, so
    that its tokens are those of the whole document.
    """
    rest = Piece("", True, "")
    for part in parts:
        if part.begins:
            if rest.text and not (rest.begins and not rest.text.strip()):
                yield rest
            rest = part
        else:
            rest = Piece(rest.text + part.text, rest.begins, rest.where)
        while len(rest.text) >= 2 * size:
            found = next(filter(None, (p.search(rest.text, size, 2 * size) for p in _STARTS)), None)
            place = found.start() if found else size
            yield Piece(rest.text[:place], rest.begins, rest.where)
            rest = Piece(rest.text[place:], False, rest.where)
    if rest.text and not (rest.begins and not rest.text.strip()):
        yield rest


_STARTS = (re.compile(r"(?<=\S)[ \n](?=\S)"), re.compile(r"(?<=\w)(?=[^\w\s])"))
"""Where a piece may begin: before a word, or else, in scripts without spaces, before a mark."""


def batch_pieces(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield lists of pieces with about BATCH characters."""
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


def _whole(file: TextFile, size: int) -> Iterator[Piece]:
    with open_text(file) as opened:
        begins = True
        while text := opened.read(size):
            yield Piece(text, begins, file.path)
            begins = False


def _lines(file: TextFile, size: int) -> Iterator[Piece]:
    with open_text(file) as opened:
        begins, number = True, 1
        while part := opened.readline(size):
            yield Piece(part.removesuffix("\n"), begins, f"{file.path}:{number}")
            begins = part.endswith("\n")
            number += begins


def _paragraphs(file: TextFile, size: int) -> Iterator[Piece]:
    """Yield lines, perhaps in parts; those after a blank line begin a paragraph."""
    after_blank, is_blank, indent = True, True, ""  # of the line, as far as it is read
    for text, begins, where in _lines(file, size):
        if begins:
            after_blank, is_blank, indent = is_blank, True, ""
        if not is_blank:
            yield Piece(text, False, where)
        elif text.strip():
            joined = "" if after_blank else "\n"
            yield Piece(joined + indent + text, after_blank, where)
            is_blank = False
        else:
            indent += text


_PARTS: dict[str, Callable[[TextFile, int], Iterator[Piece]]] = {
    "files": _whole,
    "lines": _lines,
    "paragraphs": _paragraphs,
}


def _records(file: TextFile, field: str) -> Iterator[Piece]:
    hint = (
        "" if has_records(file.path) else "; choose lines, paragraphs or files for other documents"
    )
    with open_text(file) as opened:
        for number, line in enumerate(opened, start=1):
            if line.strip():
                where = f"{file.path}:{number}"
                yield Piece(_field_of(line, field, where, hint), True, where)


def _field_of(line: str, field: str, where: str, hint: str) -> str:
    try:
        record = decode_json(line, dict[str, object])
    except ValueError as error:
        raise UserError(f'{where}: {error}; expected {{"{field}": …}}{hint}') from None
    text = record.get(field)
    if field in record and not isinstance(text, str):
        raise UserError(f"{where}: the field {field!r} is not a string; correct the line")
    if not isinstance(text, str):
        names = ", ".join(record) or "none"
        raise UserError(
            f"{where}: has no text in the field {field!r}; its fields: {names}; choose one by "
            "--text NAME or data.table.text=NAME"
        )
    return text


def _parquet(file: TextFile, field: str) -> Iterator[Piece]:
    path = Path(file.path)
    with open_parquet(path) as opened:
        names = opened.schema_arrow.names
    if field not in names:
        raise UserError(
            f"{file.path}: has no column {field!r}; its columns: {', '.join(names)}; choose one by "
            "--text NAME or data.table.text=NAME"
        )
    for number, row in enumerate(parquet_rows(path, [field]), start=1):
        if (cell := row[field]) is not None:
            where = f"{file.path}:{number}"
            yield Piece(_cell_text(cell, field, where), True, where)


def _cell_text(value: object, field: str, where: str) -> str:
    """Return the text of a Parquet cell.

    Raises:
        UserError: it holds something else.
    """
    if not isinstance(value := decoded(value), str):
        raise UserError(
            f"{where}: the column {field!r} holds no text; choose another by --text NAME or "
            "data.table.text=NAME"
        )
    return value


def read_lines(path: Path, *, blank: bool = False) -> list[Document]:
    """Return the nonblank lines of a file; with `blank`, all, and the text after the last line end.

    Raises:
        UserError: the file can't be read, is empty, or isn't text.
    """
    with open_text(inspect_file(path)) as opened:
        lines = opened.read().split("\n")
    return [
        Document(line, f"{path}:{number}")
        for number, line in enumerate(lines, start=1)
        if blank or line.strip()
    ]


def read_whole(files: Iterable[TextFile], documents: str, field: str = "text") -> list[Document]:
    """Return the documents of files, each in one text.

    Raises:
        UserError: as `read_pieces`.
    """
    parts: list[list[str]] = []
    places: list[str] = []
    for piece in read_pieces(files, documents, field):
        if piece.begins:
            parts.append([])
            places.append(piece.where)
        parts[-1].append(piece.text)
    return [Document("".join(texts), where) for texts, where in zip(parts, places, strict=True)]


def paths_among(parts: Sequence[object]) -> list[Path]:
    """Return the parts of a corpus if they are paths; none if they are texts.

    Raises:
        UserError: only some are paths.
    """
    paths = [part for part in parts if isinstance(part, Path)]
    if paths and len(paths) < len(parts):
        number = next(i for i, part in enumerate(parts, 1) if not isinstance(part, Path))
        raise UserError(
            f"document {number} is a text, but others are paths; give Path(…) for each file, or "
            "texts alone"
        )
    return paths


def read_corpus(
    corpus: Corpus,
    documents: str = "lines",
    *,
    field: str = "text",
    blank_lines: bool = False,
) -> list[Document]:
    """Return the documents of a corpus, which may be files and folders with text files.

    In files, `documents` is lines (with `blank_lines`, including blank ones), files, paragraphs or
    records, whose text is in `field`; JSONL and Parquet always hold records.

    Raises:
        UserError: a file can't be read, or there is no text.
    """
    parts: list[Any] = [Path(corpus)] if isinstance(corpus, str | Path) else list(corpus)
    if not parts:
        raise UserError("the corpus holds no document")
    if files := paths_among(parts):
        read: list[Document] = []
        for file in inspect_all(find_files(files)):
            if blank_lines and documents == "lines" and not has_records(file.path):
                read += read_lines(Path(file.path), blank=True)
            elif whole := read_whole([file], documents, field):
                read += whole
            else:
                raise UserError(f"{file.path}: is empty; a corpus needs text")
        return read
    if isinstance(first := parts[0], str) and exists(first):
        raise UserError(f"document 1 is the name {first!r}; to read the file, give Path({first!r})")
    return [
        Document(text, f"document {i}") if isinstance(text, str) else text
        for i, text in enumerate(parts, 1)
    ]
