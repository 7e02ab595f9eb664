"""Index of a corpus: its text with a suffix array over the bytes, documents, lines and words.

A suffix array lists all positions of a text in the lexicographic order of their suffixes, so all
occurrences of a string are adjacent (Manber & Myers 1990). The index is one memory-mapped
safetensors file of some 6 bytes per byte of text, including the text, or 10 from 2 GB of text on.

The text is UTF-8, in which the byte 0xFF never occurs: it ends each document, so matches don't
cross document boundaries. An inverted index maps normalized (NFKC, case-folded) words to documents.
"""

import hashlib
import re
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Int32, Int64, Integer, UInt8
from safetensors.numpy import save

from regard.errors import UserError
from regard.files import decode_json, fingerprint_of, write_file
from regard.text.corpus import Document, detect_documents, read_whole
from regard.text.files import find_files, has_records, inspect_all

FORMAT = "regard corpus index 2"
RUN_INDEX = "corpus.index"
"""Name of the index in a run's folder."""
END = b"\xff"
"""The byte after each document."""
WORD = re.compile(r"[^\W_]+")
_TOKEN = re.compile(r"[^\W_]+|\S")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


class Place(NamedTuple):
    """A line of a file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class InvertedIndex:
    """Words in the order of their UTF-8 bytes, and the numbers of their documents."""

    words: UInt8[np.ndarray, " bytes"]
    """All words in UTF-8, one after the other."""
    word_starts: Int64[np.ndarray, " words+1"]
    postings: Int32[np.ndarray, " postings"]
    """Numbers of documents, ascending for each word."""
    posting_starts: Int64[np.ndarray, " words+1"]

    def documents(self, words: Iterable[str]) -> list[int]:
        """Return the numbers of the documents that contain all of these words, ascending."""
        lists = [self._documents(word) for word in set(words)]
        if not lists:
            return []
        lists.sort(key=len)
        return sorted(set(lists[0].tolist()).intersection(*(one.tolist() for one in lists[1:])))

    def _documents(self, word: str) -> Int32[np.ndarray, " documents"]:
        text, starts, wanted = self.words.data, self.word_starts, word.encode()
        numbers = range(len(starts) - 1)

        def spelling(number: int) -> bytes:
            return bytes(text[starts[number] : starts[number + 1]])

        number = bisect_left(numbers, wanted, key=spelling)
        if number == len(numbers) or spelling(number) != wanted:
            return self.postings[:0]
        return self.postings[self.posting_starts[number] : self.posting_starts[number + 1]]


@dataclass(frozen=True)
class CorpusIndex:
    """The index of a corpus; its arrays may be memory-mapped."""

    text: UInt8[np.ndarray, " bytes"]
    suffixes: Integer[np.ndarray, " bytes"]
    """Suffix array: positions in `text`, in the order of their suffixes."""
    documents: Integer[np.ndarray, "documents 3"]
    """Start of each document in `text`, number of its file in `paths`, first line in it."""
    lines: Integer[np.ndarray, " lines"]
    """Starts of all lines in `text`; a record of JSONL or Parquet is one line."""
    inverted: InvertedIndex
    paths: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Hash of the texts, independent of file names."""
        return fingerprint_of(self.text.data)

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(one.nbytes for one in _arrays(self).values())

    def place(self, position: int) -> Place:
        """Return the file and line of a position in `text`."""
        document = np.searchsorted(self.documents[:, 0], position, side="right") - 1
        start, path, line = self.documents[document].tolist()
        first, found = np.searchsorted(self.lines, [start, position], side="right")
        return Place(self.paths[path], line + int(found - first))

    def line(self, start: int, end: int) -> tuple[int, int]:
        """Return start and end of the line or lines that contain a part of `text`."""
        last = max(end - 1, start)
        first, after = np.searchsorted(self.lines, [start, last], side="right")
        ends = self.lines[after] if after < len(self.lines) else len(self.text)
        return int(self.lines[first - 1]), int(ends) - 1

    def document(self, number: int) -> str:
        """Return the text of a document."""
        start = int(self.documents[number, 0])
        last = number + 1 == len(self.documents)
        end = len(self.text) if last else int(self.documents[number + 1, 0])
        return bytes(self.text[start : end - 1]).decode()


# Building


class _Part(NamedTuple):
    """A document to be indexed."""

    text: bytes
    place: Place
    has_lines: bool
    """Whether line ends in the text are line ends of the file."""


def index_files(
    paths: Iterable[Path], *, documents: str = "auto", field: str = "text"
) -> CorpusIndex:
    """Index text files and the text files of folders.

    `documents` is lines, files, paragraphs or records, or auto: detected as by `regard train text`;
    `field` is the text field of records.

    Raises:
        UserError: a file can't be read or isn't text, or pydivsufsort isn't installed.
    """
    files = inspect_all(find_files(paths))
    kind = detect_documents(files) if documents == "auto" else documents
    parts: list[_Part] = []
    for file in files:
        has_lines = kind != "records" and not has_records(file.path)
        for document in read_whole([file], kind, field):
            line = int(document.where.removeprefix(file.path).removeprefix(":") or 1)
            place = Place(file.path, line)
            parts.append(_Part(document.text.encode(), place, has_lines))
    if not parts:
        raise UserError(f"{files[0].path}: contains no document; give a file with text")
    return _build(parts)


def index_documents(documents: Sequence[Document], *, records: bool = False) -> CorpusIndex:
    """Index documents in memory, at least one; `records` are a line each, whatever the file.

    Raises:
        UserError: pydivsufsort isn't installed.
    """
    placed = [(document.text.encode(), _parse_place(document.where)) for document in documents]
    return _build(
        [_Part(text, place, not (records or has_records(place.path))) for text, place in placed]
    )


def _parse_place(where: str) -> Place:
    found = re.fullmatch(r"(.*):(\d+)", where, re.DOTALL)
    return Place(found[1], int(found[2])) if found else Place(where, 1)


def _build(parts: Sequence[_Part]) -> CorpusIndex:
    text = b"".join(part.text + END for part in parts)
    dtype = np.int32 if len(text) < 2**31 else np.int64
    starts = [0, *accumulate(len(part.text) + 1 for part in parts[:-1])]
    numbers = {path: i for i, path in enumerate(dict.fromkeys(part.place.path for part in parts))}
    documents = [
        (start, numbers[part.place.path], part.place.line)
        for start, part in zip(starts, parts, strict=True)
    ]
    return CorpusIndex(
        text=np.frombuffer(text, np.uint8),
        suffixes=_suffix_array(text).view(dtype),
        documents=np.array(documents, dtype),
        lines=np.fromiter(_line_starts(parts, starts), dtype),
        inverted=invert(part.text.decode() for part in parts),
        paths=tuple(numbers),
    )


def _line_starts(parts: Iterable[_Part], starts: Iterable[int]) -> Iterator[int]:
    for part, start in zip(parts, starts, strict=True):
        yield start
        if part.has_lines:
            yield from (start + found.end() for found in re.finditer(b"\n", part.text))


def invert(documents: Iterable[str]) -> InvertedIndex:
    """Return the inverted index of documents."""
    holding: dict[str, array[int]] = {}
    for number, document in enumerate(documents):
        for word in {fold(word) for word in set(WORD.findall(compose(document)))}:
            holding.setdefault(word, array("i")).append(number)
    postings = {word.encode(): holding[word] for word in holding}
    words = sorted(postings)
    joined = array("i", chain.from_iterable(postings[word] for word in words))
    return InvertedIndex(
        words=np.frombuffer(b"".join(words), np.uint8),
        word_starts=_starts(map(len, words)),
        postings=np.array(joined, np.int32),
        posting_starts=_starts(len(postings[word]) for word in words),
    )


def _starts(sizes: Iterable[int]) -> Int64[np.ndarray, " words+1"]:
    """Return the starts of parts of these sizes, and the end of the last one."""
    return np.array([0, *accumulate(sizes)], np.int64)


def compose(text: str) -> str:
    """Return a text in NFKC, in which «ﬁ» is «fi» and letters and accents are composed."""
    return unicodedata.normalize("NFKC", text)


@lru_cache(maxsize=2**16)
def fold(word: str) -> str:
    """Return a composed word case-folded."""
    return compose(word.casefold())


NO_INDEX = "no index of the text: it needs pydivsufsort: pip install 'regard[index]'"
"""Message of training without an index."""


def can_index() -> bool:
    """Return whether pydivsufsort is installed."""
    return find_spec("pydivsufsort") is not None


def _suffix_array(text: bytes) -> Integer[np.ndarray, " bytes"]:
    if not can_index():
        raise UserError("an index needs pydivsufsort: pip install 'regard[index]'")
    from pydivsufsort import divsufsort

    array: Integer[np.ndarray, " bytes"] = divsufsort(text)
    return array


# The file


class _Metadata(msgspec.Struct, kw_only=True):
    """Metadata of the safetensors file, which are strings."""

    format: str
    checksum: str
    """Hash of everything else."""
    fingerprint: str
    paths: str
    """A JSON list."""


def save_index(path: Path, index: CorpusIndex) -> str:
    """Write an index to one file, atomically; return its fingerprint."""
    arrays, fingerprint = _arrays(index), index.fingerprint
    paths = msgspec.json.encode(index.paths).decode()
    checksum = _checksum(arrays, fingerprint, paths)
    metadata = _Metadata(format=FORMAT, checksum=checksum, fingerprint=fingerprint, paths=paths)
    write_file(path, save(arrays, msgspec.to_builtins(metadata)))
    return fingerprint


def require_replaceable(path: Path) -> None:
    """Check that a path is free or an index that may be replaced.

    Raises:
        UserError: it is another file.
    """
    if path.exists():
        try:
            _parse(_map(path))
        except (OSError, *_MALFORMED):
            raise UserError(f"{path}: exists but is not an index; choose another --out") from None


def open_index(path: Path, *, fingerprint: str | None = None) -> CorpusIndex:
    """Map an index into memory, after a check of its content.

    Raises:
        UserError: the file is missing, damaged or not an index, or the fingerprint of its texts
            differs from `fingerprint`.
    """
    try:
        arrays, metadata = _parse(_map(path))
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}; {_MAKE_ONE}") from None
    except _MALFORMED:
        raise UserError(f"{path}: is not a corpus index, or is truncated; {_MAKE_ONE}") from None
    if metadata.checksum != _checksum(arrays, metadata.fingerprint, metadata.paths):
        raise UserError(f"{path}: is damaged, its checksum differs; {_MAKE_ONE}")
    if fingerprint not in (None, metadata.fingerprint):
        raise UserError(
            f"{path}: is an index of other texts (fingerprint {metadata.fingerprint}, expected "
            f"{fingerprint}); {_MAKE_ONE}"
        )
    paths = decode_json(metadata.paths, tuple[str, ...])
    inverted = InvertedIndex(**{x.name: arrays.pop(x.name) for x in fields(InvertedIndex)})
    return CorpusIndex(**arrays, inverted=inverted, paths=paths)


_MAKE_ONE = "make one: regard index CORPUS --out INDEX"


def _arrays(index: CorpusIndex) -> dict[str, np.ndarray[Any, Any]]:
    """Return all arrays of an index by their names."""
    own = {name: getattr(index, name) for name in ("text", "suffixes", "documents", "lines")}
    return own | vars(index.inverted)


def _checksum(arrays: Mapping[str, np.ndarray[Any, Any]], fingerprint: str, paths: str) -> str:
    digest = hashlib.sha256(f"{fingerprint} {paths}".encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(arrays[name].data)
    return digest.hexdigest()


_MALFORMED = (ValueError, KeyError, TypeError)
"""Exceptions for files of another format."""
_DTYPES = {"U8": np.uint8, "I32": np.int32, "I64": np.int64}


class _Tensor(msgspec.Struct, kw_only=True):
    """Entry of a tensor in the header of a safetensors file."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def _map(path: Path) -> UInt8[np.ndarray, " bytes"]:
    """Map a file into memory; an empty one raises ValueError."""
    mapped: UInt8[np.ndarray, " bytes"] = np.memmap(path, np.uint8, mode="r").view(np.ndarray)
    return mapped


def _parse(
    mapped: UInt8[np.ndarray, " bytes"],
) -> tuple[dict[str, np.ndarray[Any, Any]], _Metadata]:
    """Return views of the tensors of a mapped safetensors file, and its metadata."""
    size = int.from_bytes(mapped[:8], "little")
    header = decode_json(bytes(mapped[8 : 8 + size]), dict[str, msgspec.Raw])
    metadata = decode_json(header.pop("__metadata__"), _Metadata)
    if metadata.format != FORMAT:
        raise ValueError(metadata.format)
    body = mapped[8 + size :]
    entries = {name: decode_json(raw, _Tensor) for name, raw in header.items()}
    if max(entry.data_offsets[1] for entry in entries.values()) != len(body):
        raise ValueError("the tensors don't fill the file")
    arrays = {
        name: body[slice(*entry.data_offsets)].view(_DTYPES[entry.dtype]).reshape(entry.shape)
        for name, entry in entries.items()
    }
    return arrays, metadata


class Sentence(NamedTuple):
    """A sentence of a document."""

    text: str
    """In Unicode's form NFKC."""
    offset: int
    """Start in the document, in characters."""


class Token(NamedTuple):
    """A word or a punctuation mark of a sentence."""

    word: str
    """Normalized: NFKC, case-folded."""
    start: int
    """Start in the sentence, in characters."""
    end: int
    sentence: int
    """Number of the sentence in the document."""


def split_sentences(document: str) -> list[Sentence]:
    """Split a document into sentences, after a full stop, «!» or «?» and a space.

    Abbreviations end sentences too.
    """
    starts = [0, *(found.end() for found in _SENTENCE_END.finditer(document))]
    ends = [*(found.start() for found in _SENTENCE_END.finditer(document)), len(document)]
    return [Sentence(compose(document[a:b]), a) for a, b in zip(starts, ends, strict=True)]


def tokenize(sentences: list[Sentence]) -> list[Token]:
    """Return words and punctuation marks of sentences."""
    return [
        Token(fold(found.group()), found.start(), found.end(), number)
        for number, sentence in enumerate(sentences)
        for found in _TOKEN.finditer(sentence.text)
    ]


def fold_words(text: str) -> list[str]:
    """Return words and punctuation marks of a text, normalized."""
    return [fold(word) for word in _TOKEN.findall(compose(text))]
