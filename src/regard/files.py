"""Writing so that a kill at any moment leaves the old or the new, never a mixture.

Every change to a run goes through these few functions.
"""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path


def write_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole: written beside it, flushed, then renamed."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.partial")
    with _cleared_up(temporary, path):
        _write(temporary, data)
        _rename(temporary, path)
    _flush_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder that appears with all its files at once."""
    temporary = path.with_name(f".{path.name}.partial")
    if temporary.exists():
        shutil.rmtree(temporary)
    with _cleared_up(temporary, path):
        temporary.mkdir(parents=True)
        for name, data in files.items():
            _write(temporary / name, data)
        _flush_folder(temporary)
        _rename(temporary, path)
    _flush_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file; after a kill its last line may be torn."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@contextmanager
def _cleared_up(temporary: Path, path: Path) -> Iterator[None]:
    """If writing fails, take away what was begun; the error names the file that was meant."""
    try:
        yield
    except OSError as error:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with suppress(OSError):
                temporary.unlink()
        error.filename, error.filename2 = str(path), None
        raise


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _rename(source: Path, target: Path) -> None:
    source.replace(target)


def _flush_folder(path: Path) -> None:
    """Make a rename last through a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
