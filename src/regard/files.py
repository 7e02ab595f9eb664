"""Files: text that is read as UTF-8, tables, tensors, offline pages, checksums, and atomic writes.

Every change to a run goes through these functions: a kill at any moment leaves the old content or
the new, never a mixture.
"""

import csv
import errno
import io
import json
import os
import shutil
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import file_digest, sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from regard.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

MISSING = "is missing; restore it from a copy"
"""Message about a missing file of a folder, such as that of a run."""


def exists(name: str) -> bool:
    """Return whether a text is the name of a file or folder; a text too long for one isn't."""
    with suppress(OSError):
        return bool(name) and Path(name).exists()
    return False


def require_new(out: str | Path) -> None:
    """Raise if an output path exists.

    Raises:
        UserError: it exists.
    """
    if Path(out).exists():
        raise UserError(f"{out}: exists; choose another --out")


def expanded(name: str | Path) -> Path:
    """Return a path with "~" replaced by the home folder, as shells do at the start of a word."""
    with suppress(RuntimeError):  # "~nobody" has no home folder
        return Path(name).expanduser()
    return Path(name)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, as files have them: no form feed or U+2028 ends a line."""
    return [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]


def read_text(path: Path, *, missing: str = "no such file") -> str:
    """Return the text of a UTF-8 file, with \\n line ends and without a byte order mark.

    `missing` is the message about a missing file.

    Raises:
        UserError: the file is missing, not a file, or not UTF-8.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: {missing}") from None
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: byte {data[error.start]:#04x} isn't UTF-8; save the file as UTF-8"
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_table(path: Path) -> dict[str, Any]:
    """Return the table in a JSON file of a folder.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        table = json.loads(read_text(path, missing=MISSING))
    except (ValueError, RecursionError) as error:  # also of huge numbers and deep nesting
        raise UserError(f"{path}: isn't JSON ({error}); restore it from a copy") from None
    if not isinstance(table, dict):
        raise UserError(f"{path}: holds no table; restore it from a copy")
    return table


def decode_json(data: bytes | str | memoryview, type_: type[T]) -> T:
    """Decode JSON from any source as a value of a type.

    Raises:
        ValueError: the JSON is invalid, or of another type.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def to_json(table: dict[str, Any]) -> bytes:
    """Return a table as the content of a JSON file."""
    return json.dumps(table, indent=2, ensure_ascii=False).encode()


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV, with the columns of all rows; missing values are empty."""
    file = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(file, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def packaged_text(path: str) -> str:
    """Return the text of a file of the library, by its path in the package."""
    return (files("regard") / path).read_text(encoding="utf-8")


def read_tensors(path: Path) -> dict[str, "Tensor"]:
    """Return the tensors of a safetensors file.

    Raises:
        UserError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: {MISSING}") from None
    except SafetensorError as error:
        raise UserError(f"{path}: is damaged ({error}); restore it from a copy") from None


def pack_tensors(tensors: Mapping[str, "Tensor"], metadata: dict[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file."""
    from safetensors.torch import save

    contiguous = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    return save(contiguous, metadata)


def cache_folder(content: str) -> Path:
    """Return $REGARD_CACHE, or else regard/CONTENT in the user's cache folder.

    Raises:
        UserError: there is neither.
    """
    chosen = os.environ.get("REGARD_CACHE")
    return Path(chosen) if chosen else user_folder("CACHE", "REGARD_CACHE to a folder") / content


def user_folder(kind: Literal["CACHE", "CONFIG"], instead: str) -> Path:
    """Return regard in the user's folder of a kind (XDG Base Directory Specification).

    `instead` is the environment variable to set where there is none, for the message.

    Raises:
        UserError: there is no such folder.
    """
    try:
        chosen = os.environ.get(f"XDG_{kind}_HOME") or Path.home() / f".{kind.lower()}"
    except RuntimeError:
        raise UserError(f"there is no home folder; set {instead}") from None
    return Path(chosen) / "regard"


def write_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: write a temporary file, flush it, rename it.

    A device, a pipe, or the file to which standard output goes, is written to, not replaced.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if (stream := _stream(path)) is not None:
        with errors_name(path), open(stream, "wb", closefd=stream is path) as file:
            file.write(data)
        return
    own = f".{path.name}.{os.getpid()}.partial"  # two processes may write the file at a time
    temporary = path.with_name(own)
    with cleared_up(temporary, path):
        _write(temporary, data)
        publish(temporary, path)


def _stream(path: Path) -> Path | int | None:
    """Return what to open for standard output or error, a device or a pipe; None for others."""
    for number in (1, 2):
        with suppress(OSError):
            if os.path.samestat(path.stat(), os.fstat(number)):
                return number
    return path if path.is_char_device() or path.is_fifo() else None


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Create a folder with all its files atomically."""
    with new_folder(path) as temporary:
        for name, data in files.items():
            _write(temporary / name, data)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a hidden folder to write to, which becomes `path` at the end.

    What a killed command has left of it is replaced.
    """
    temporary = path.with_name(f".{path.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    with cleared_up(temporary, path):
        temporary.mkdir(parents=True)
        yield temporary
        _flush_folder(temporary)
        publish(temporary, path)


def stage_folder(temporary: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files to a temporary folder, for `publish`."""
    temporary.mkdir(parents=True, exist_ok=True)
    for name, data in files:
        _write(temporary / name, data)
    _flush_folder(temporary)


def publish(temporary: Path, path: Path) -> None:
    """Rename a complete temporary file or folder."""
    _rename(temporary, path)
    _flush_folder(path.parent)


@contextmanager
def cleared_up(temporary: Path, path: Path) -> Iterator[None]:
    """Remove the temporary file or folder on failure or Ctrl-C.

    An error of the disk names the final path.
    """
    try:
        with errors_name(path):
            yield
    except (Exception, KeyboardInterrupt):
        _remove(temporary)
        raise


def remove_unfinished(folder: Path) -> None:
    """Delete what killed processes have left half-written in a folder that no other one writes."""
    for path in folder.glob(".*.partial"):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Let an error of the disk name a path, whichever temporary file it comes from."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


@contextmanager
def hold_lock(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file exclusively; a killed process releases it.

    Raises:
        UserError: another process holds it; `busy` is the message.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=0):
            yield
    except Timeout:
        raise UserError(busy) from None


@contextmanager
def held_alone(out: Path) -> Iterator[None]:
    """Lock a folder to write; the lock file beside it is removed before it is released.

    Raises:
        UserError: another process writes it.
    """
    place = out.resolve()
    lock = place.with_name(f".{place.name}.lock")
    busy = f"{out}: another process is writing it; wait until it ends, or choose another --out"
    with ExitStack() as held:
        with errors_name(out):
            if place.parent.is_file():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            place.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(hold_lock(lock, busy))
        try:
            yield
        finally:
            with suppress(OSError):  # Windows removes no open file
                lock.unlink()


def append_line(path: Path, line: str) -> None:
    """Append a line to a file; after a kill its last line may be incomplete."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _rename(source: Path, target: Path) -> None:
    """Rename; an empty folder is replaced, which Windows doesn't do by itself."""
    if sys.platform == "win32" and source.is_dir() and target.is_dir():
        target.rmdir()
    source.replace(target)


def _flush_folder(path: Path) -> None:
    """Make a rename durable; Windows has no such call and needs none."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Offline pages: the policy that allows their scripts, and data that can't end a script


def offline_page(
    body: str, *, title: str, style: str, script: str = "", css_class: str = "", **values: str
) -> str:
    """Return a self-contained page that can run this script alone.

    `body` is the path of a template in the package, filled with the title, the script and `values`,
    which are HTML or data. `css_class` is that of the page.
    """
    shown = {"title": escape(title), "script": script}
    inside = Template(packaged_text(body)).substitute(shown, **values).rstrip("\n")
    return Template(packaged_text("page.html")).substitute(
        shown, policy=content_policy(script), style=style, css_class=css_class, body=inside
    )


def content_policy(*scripts: str) -> str:
    """Return a Content Security Policy that allows these scripts and no requests (W3C CSP 3)."""
    digests = (b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def inert(data: dict[str, Any]) -> str:
    """Return JSON in which no text can end the script around it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def sums_of(files: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of files, by their names."""
    return {path.name: sha256_of(path) for path in files}


def changed_file(folder: Path, sums: Mapping[str, str]) -> Path | None:
    """Return the first of a folder's files that is missing or has another sha256, if any."""
    for name, digest in sums.items():
        path = folder / name
        if not path.is_file() or sha256_of(path) != digest:
            return path
    return None


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def fingerprint_of(data: bytes | memoryview) -> str:
    """Return 16 hexadecimal digits of the sha256 of data, which identify them."""
    return sha256(data).hexdigest()[:16]
