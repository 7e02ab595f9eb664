"""Writing so that a kill at any moment leaves the old or the new, never a mixture.

Every change to a run goes through these few functions.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path


def write_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole: written beside it, flushed, then renamed."""
    temporary = path.with_name(f".{path.name}.partial")
    _write(temporary, data)
    _rename(temporary, path)
    _flush_folder(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder that appears with all its files at once."""
    temporary = path.with_name(f".{path.name}.partial")
    if temporary.exists():
        shutil.rmtree(temporary)
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
