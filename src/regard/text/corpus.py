"""Reading text: documents and where each of them stands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from regard.errors import UserError
from regard.text.files import (
    TextFile,
    find_files,
    has_records,
    inspect_all,
    inspect_file,
    open_text,
    read_pieces,
)


@dataclass(frozen=True)
class Document:
    """A text and its place, for messages."""

    text: str
    where: str
    """file:line, or the file alone."""


Corpus: TypeAlias = str | Path | Sequence[Path] | Sequence[str] | Sequence[Document]
"""A file or folder, several of them, or the documents themselves."""


def read_lines(path: Path, *, blank: bool = False) -> list[Document]:
    """Return the lines of a file that hold anything; or all, and what follows the last line end.

    Raises:
        UserError: the file can't be read, is empty, or is no text.
    """
    with open_text(inspect_file(path)) as opened:
        lines = opened.read().split("\n")
    return [
        Document(line, f"{path}:{number}")
        for number, line in enumerate(lines, start=1)
        if blank or line.strip()
    ]


def read_corpus(
    paths: Iterable[Path],
    documents: str = "lines",
    *,
    field: str = "text",
    blank_lines: bool = False,
) -> list[Document]:
    """Return the documents of files, and of the text files of folders.

    `documents` is lines (with `blank_lines` blank ones too), files, paragraphs or records, whose
    text stands in `field`; JSONL and Parquet always hold records.

    Raises:
        UserError: a file can't be read, or holds no text.
    """
    read: list[Document] = []
    for file in inspect_all(find_files(paths)):
        if blank_lines and documents == "lines" and not has_records(file.path):
            read += read_lines(Path(file.path), blank=True)
        elif whole := read_whole([file], documents, field):
            read += whole
        else:
            raise UserError(f"{file.path}: is empty; a corpus needs text")
    return read


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


def read_documents(
    corpus: Corpus,
    documents: str = "lines",
    *,
    field: str = "text",
    blank_lines: bool = False,
) -> list[Document]:
    """Return the documents of a corpus, which may be files and folders, as `read_corpus` does.

    Raises:
        UserError: a file can't be read, or there is no text.
    """
    parts = [Path(corpus)] if isinstance(corpus, str | Path) else corpus
    if files := [part for part in parts if isinstance(part, Path)]:
        return read_corpus(files, documents, field=field, blank_lines=blank_lines)
    if not parts:
        raise UserError("the corpus holds no document")
    texts: list[str | Document] = [part for part in parts if not isinstance(part, Path)]
    return [
        Document(text, f"document {i}") if isinstance(text, str) else text
        for i, text in enumerate(texts, 1)
    ]
