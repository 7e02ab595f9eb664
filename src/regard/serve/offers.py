"""The runs that a page offers. It knows them by number and name; paths stay on this side."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import UserError


@dataclass(frozen=True)
class Offer:
    """A run that may be looked at."""

    name: str
    path: Path
    """Absolute, so that it can be told from all else in a message."""


def offer(runs: Sequence[Path]) -> list[Offer]:
    """These runs, each with a name of its own.

    Raises:
        UserError: a folder is no run.
    """
    found: list[Offer] = []
    for path in runs:
        if not (path / "config.toml").is_file():
            raise UserError(f"{path}: is no run: it has no config.toml")
        resolved = path.resolve()
        found.append(Offer(_unused(resolved.name, {one.name for one in found}), resolved))
    return found


def find_runs(folder: Path) -> list[Path]:
    """All runs below a folder that have weights.

    Raises:
        UserError: there are none.
    """
    found = sorted(weights.parent for weights in folder.rglob("model.safetensors"))
    runs = [path for path in found if (path / "config.toml").is_file()]
    if not runs:
        raise UserError(f"{folder}: holds no trained run; name some, or train one: regard demo")
    return runs


def _unused(name: str, taken: set[str]) -> str:
    """The name, or the first of "name (2)", "name (3)", … that is free."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name} ({number})"
    return candidate
