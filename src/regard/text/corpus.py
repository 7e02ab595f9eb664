"""Reading text: documents and where each of them stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from regard.errors import UserError
from regard.files import read_text


@dataclass(frozen=True)
class Document:
    """A text and its place, for messages."""

    text: str
    where: str
    """file:line, or the file alone."""


Corpus: TypeAlias = str | Path | Sequence[Path] | Sequence[str] | Sequence[Document]
"""A file, several files, or the documents themselves."""


def read_lines(path: Path, *, blank: bool = False) -> list[Document]:
    """The lines of a file that hold anything; or all, and what follows the last line end."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    return [Document(line, f"{path}:{number}") for number, line in lines if blank or line.strip()]


def read_corpus(
    paths: Sequence[Path], *, whole_files: bool = False, blank_lines: bool = False
) -> list[Document]:
    """The documents of some files: a line each, or a file each.

    Raises:
        UserError: a file can't be read or holds no text.
    """
    documents = []
    for path in paths:
        if whole_files:
            read = [Document(read_text(path), str(path))]
        else:
            read = read_lines(path, blank=blank_lines)
        if not any(document.text.strip() for document in read):
            raise UserError(f"{path}: is empty; a corpus needs text")
        documents.extend(read)
    return documents


def read_documents(
    corpus: Corpus, *, whole_files: bool = False, blank_lines: bool = False
) -> list[Document]:
    """Return the documents of a corpus, which may be files.

    Raises:
        UserError: a file can't be read, or there is no text.
    """
    parts = [Path(corpus)] if isinstance(corpus, str | Path) else corpus
    if files := [part for part in parts if isinstance(part, Path)]:
        return read_corpus(files, whole_files=whole_files, blank_lines=blank_lines)
    if not parts:
        raise UserError("the corpus holds no document")
    texts: list[str | Document] = [part for part in parts if not isinstance(part, Path)]
    return [
        Document(text, f"document {i}") if isinstance(text, str) else text
        for i, text in enumerate(texts, 1)
    ]
