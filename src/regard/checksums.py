"""Checksums of files, which show that a disk or a copy has changed them."""

from collections.abc import Iterable, Mapping
from hashlib import file_digest
from pathlib import Path


def sums_of(files: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of files, by their names."""
    return {path.name: _sha256(path) for path in files}


def changed_file(folder: Path, sums: Mapping[str, str]) -> Path | None:
    """Return the first of a folder's files that is missing or has another sha256, if any."""
    for name, digest in sums.items():
        path = folder / name
        if not path.is_file() or _sha256(path) != digest:
            return path
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
