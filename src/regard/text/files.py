"""Text files of users: search, compression and encoding."""

import bz2
import codecs
import gzip
import hashlib
import lzma
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import IO, Any, TextIO, cast

import msgspec

from regard.errors import UserError, first_line, some

RECORDS = {".jsonl", ".ndjson", ".parquet"}
SUFFIXES = {".txt", ".md", ".text", ".markdown"} | RECORDS
"""Files of a folder that are read; a file that is named may have any other name."""
_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
COMPRESSED = {*_OPENERS, ".zst"}
"""Suffixes of compressed files, after that of their content: web.jsonl.gz."""
PACKED = "packed.json"
"""The file that makes a folder a packed corpus."""
BLOCK = 2**20
_NAMED = 20
"""Largest number of bad files that a message names."""


class TextFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, its encoding and its content's hash."""

    path: str
    size: int
    """Bytes, after decompression."""
    modified: int
    """Time of the last change, in nanoseconds."""
    encoding: str
    """Empty for Parquet."""
    sha256: str


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Return files, and the text files of folders in the order of their names.

    Raises:
        UserError: a path doesn't exist, or a folder has no text files or is a packed corpus.
    """
    found: list[Path] = []
    for path in paths:
        if not path_exists(path):
            raise UserError(f"{path}: no such file")
        if (path / PACKED).is_file():
            raise UserError(f"{path}: is a packed corpus; name the text that it was packed from")
        inside = sorted(visible_texts(path)) if path.is_dir() else [path]
        if not inside:
            kinds = ", ".join(sorted(SUFFIXES))
            packed = " and their .gz, .bz2, .xz and .zst"
            raise UserError(f"{path}: has no text files; it is searched for {kinds}{packed}")
        found += inside
    if not found:
        raise UserError("there is no file to read; name one")
    return list(dict.fromkeys(found))


def path_exists(path: Path) -> bool:
    """Return whether a file or folder to read exists.

    Raises:
        UserError: a folder that holds it can't be searched.
    """
    try:
        return path.exists()
    except PermissionError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None


def visible_texts(folder: Path) -> Iterator[Path]:
    """Yield the text files of a folder and those in it, without hidden ones and those of runs."""
    found = list(folder.rglob("*"))
    origins = (path for path in found if path.name == "origin.json")
    runs = {path.parent for path in origins if path.with_name("config.toml").is_file()}
    for path in found:
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        left_out = hidden or not runs.isdisjoint(path.parents)
        if content_suffix(path) in SUFFIXES and not left_out and path.is_file():
            yield path


def content_suffix(path: str | Path) -> str:
    """Return the suffix of a file's content, in lower case: .jsonl of web.jsonl.gz."""
    path = Path(path)
    return Path(path.stem if path.suffix.lower() in COMPRESSED else path.name).suffix.lower()


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file; compressed ones are read decompressed.

    Raises:
        UserError: the file is compressed by Zstandard, and zstandard isn't installed.
    """
    suffix = path.suffix.lower()
    if suffix in _OPENERS:
        return cast("IO[bytes]", _OPENERS[suffix](path))
    if suffix == ".zst":
        return BufferedReader(_Blocks(_zstandard_blocks(path)))
    return path.open("rb")


def _zstandard_blocks(path: Path) -> Iterator[bytes]:
    """Return the content of a file of Zstandard frames (RFC 8878, §3), all of which must be whole.

    Raises:
        EOFError: the file is damaged.
        UserError: zstandard isn't installed.
    """
    try:
        import zstandard  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UserError(
            f"{path}: Zstandard needs the package zstandard; install it, or compress the file "
            "by gzip"
        ) from None
    frame: Any = None
    with path.open("rb") as file:
        try:
            while block := file.read(BLOCK):
                while block:
                    frame = frame or zstandard.ZstdDecompressor().decompressobj()
                    yield frame.decompress(block)
                    block = frame.unused_data
                    frame = None if frame.eof else frame
        except zstandard.ZstdError as error:
            raise EOFError(str(error)) from None
    if frame:
        raise EOFError("it was cut short")


class _Blocks(RawIOBase):
    """Blocks of bytes as a file that is read once."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks, self._rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def inspect_file(path: Path) -> TextFile:
    """Hash a file and detect its encoding: UTF-8, UTF-16 with a mark, Windows-1252, or Latin-1.

    Raises:
        UserError: the file can't be read, is empty, or isn't text.
    """
    if path_exists(path) and path.is_fifo():
        raise UserError(f"{path}: is a pipe, and a text is read twice; save it to a file")
    digest, detector, size = hashlib.sha256(), _EncodingDetector(path), 0
    try:
        with open_bytes(path) as file:
            while block := file.read(BLOCK):
                digest.update(block)
                detector.read(block)
                size += len(block)
        status = path.stat()
        if content_suffix(path) == ".parquet":
            open_parquet(path).close()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{path}: is damaged ({error}); restore it from a copy") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from None
    return TextFile(
        path=str(path),
        size=size,
        modified=status.st_mtime_ns,
        encoding="" if content_suffix(path) == ".parquet" else detector.encoding(),
        sha256=digest.hexdigest(),
    )


def inspect_all(
    paths: Iterable[Path],
    inspect: Callable[[Path], TextFile] = inspect_file,
    *,
    skip_bad: bool = False,
    hint: str = "",
) -> tuple[TextFile, ...]:
    """Inspect files; with `skip_bad`, bad ones are left out with a warning.

    Raises:
        UserError: names all bad files, and gives the `hint` if others are good.
    """
    good, bad = list[TextFile](), dict[Path, str]()
    for path in paths:
        try:
            good.append(inspect(path))
        except UserError as error:
            bad[path] = str(error)
    if not bad:
        return tuple(good)
    first, *others = bad
    named = some([str(path) for path in others], _NAMED)
    if skip_bad and good:
        more = f" (the others: {named})" if others else ""
        warnings.warn(f"bad files left out: {bad[first]}{more}", stacklevel=2)
        return tuple(good)
    more = f" (other bad files: {named})" if others else ""
    raise UserError(f"{bad[first]}{more}{hint if good else ''}")


class _EncodingDetector:
    """Reads a file block by block and detects its encoding."""

    def __init__(self, path: Path) -> None:
        self._path, self._first, self._lines = path, b"", 0
        self._decoders = {
            name: codecs.getincrementaldecoder(name)() for name in ("utf-8", "cp1252")
        }
        self._binary, self._blank, self._bad = False, True, ""
        self._beyond_ascii = False
        """Whether valid UTF-8 beyond ASCII has been read."""

    def read(self, block: bytes) -> None:
        if not self._first and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoders = {"utf-16": codecs.getincrementaldecoder("utf-16")()}
        self._first = self._first or block[:4]
        self._binary = self._binary or b"\0" in block
        self._blank = self._blank and not block.removeprefix(codecs.BOM_UTF8).strip()
        self._decode(block)

    def encoding(self) -> str:
        """Return the encoding.

        Raises:
            UserError: the file is empty or isn't text, or is UTF-8 with a damaged part.
        """
        if self._blank:
            raise UserError(f"{self._path}: is empty; give a file with text")
        self._decode(b"", final=True)
        if self._first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            if self._first.startswith(codecs.BOM_UTF32_LE) or "utf-16" not in self._decoders:
                raise UserError(f"{self._path}: isn't valid UTF-16; save the file as UTF-8")
            return "utf-16"
        if self._binary:
            raise UserError(f"{self._path}: holds zero bytes, so it is no text; leave it out")
        if "utf-8" in self._decoders:
            return "utf-8-sig"
        if self._beyond_ascii:
            raise UserError(f"{self._path}:{self._bad} isn't UTF-8; save the file as UTF-8")
        return "cp1252" if "cp1252" in self._decoders else "latin-1"

    def _decode(self, block: bytes, *, final: bool = False) -> None:
        for name, decoder in list(self._decoders.items()):
            try:
                text = decoder.decode(block, final)
            except UnicodeDecodeError as error:
                del self._decoders[name]
                if name == "utf-8":
                    before, byte = error.object[: error.start], error.object[error.start]
                    line = self._lines + before.count(b"\n") + 1
                    self._bad = f"{line}: byte {byte:#04x}"
                    self._beyond_ascii = self._beyond_ascii or not before.isascii()
            else:
                mark = name == "utf-8" and not text.removeprefix("\ufeff").isascii()
                self._beyond_ascii = self._beyond_ascii or mark
        self._lines += block.count(b"\n")


def has_records(path: str) -> bool:
    """Return whether a file holds records, whatever documents are elsewhere."""
    return content_suffix(path) in RECORDS


def open_text(file: TextFile) -> TextIO:
    """Open a file in its encoding; \\r\\n and \\r are read as \\n."""
    return TextIOWrapper(open_bytes(Path(file.path)), encoding=file.encoding, newline=None)


def decoded(value: object) -> object:
    """Return the text of a cell that a writer of Parquet stored as bytes; others as they are."""
    with suppress(UnicodeDecodeError):
        return value.decode() if isinstance(value, bytes) else value
    return value


def open_parquet(path: Path) -> Any:
    """Open a Parquet file.

    Raises:
        UserError: pyarrow isn't installed, or the file isn't Parquet.
    """
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise UserError(
            f"{path}: Parquet needs pyarrow: pip install 'regard[parquet]', or convert it to JSONL"
        ) from None
    try:
        return parquet.ParquetFile(path)
    except ArrowInvalid as error:
        raise UserError(f"{path}: is no Parquet file: {error}") from None


def parquet_rows(path: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file, with all of its columns or some.

    Raises:
        UserError: as `open_parquet`, or the file is damaged.
    """
    with open_parquet(path) as opened:
        try:
            for batch in opened.iter_batches(batch_size=1024, columns=columns):
                yield from batch.to_pylist()
        except (OSError, ValueError) as error:  # errors of pyarrow and of UTF-8 are ValueErrors
            raise UserError(
                f"{path}: is damaged ({first_line(error)}); restore it from a copy"
            ) from None
