"""The code of a run's custom mechanisms: copied into its folder, and run only where it is trusted.

`RUN/code/` holds the files, `origin.json` their sha256. A file is trusted if its sha256 is in the
user's list, to which it is added when the user trains with the file or passes `--trust-code`. Code
that a recipe or grid names must be trusted, too, unless the command line also names it.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from regard.config import Config, code_paths, parse_toml, parse_value
from regard.errors import UserError
from regard.files import read_text, sha256_of, user_folder, write_file

FOLDER = "code"
LONGEST_PATH = 4096
"""Longest path of a file, in characters."""


def code_files(config: Config) -> dict[str, Path]:
    """Return the files of code that a configuration names, by their names.

    Raises:
        UserError: two different files have the same name.
    """
    files: dict[str, Path] = {}
    for path in code_paths(msgspec.to_builtins(config)):
        other = files.setdefault(path.name, path)
        if other != path and other.read_bytes() != path.read_bytes():
            raise UserError(f"{path} and {other} have one name; rename one of them")
    return files


def code_hashes(config: Config) -> dict[str, str]:
    """Return the sha256 of each file of code that a configuration names."""
    return {name: sha256_of(path) for name, path in code_files(config).items()}


def copy_code(config: Config, run: Path) -> None:
    """Copy the files of code into a run's folder; training with them marks them as trusted."""
    for name, path in code_files(config).items():
        (run / FOLDER).mkdir(exist_ok=True)
        if path != run / FOLDER / name:
            write_file(run / FOLDER / name, path.read_bytes())
        _trust(path)


def check_code(values: Any, hashes: dict[str, str]) -> None:
    """Raise unless a run's files of code are those it was trained with, and trusted.

    Raises:
        UserError: names the file.
    """
    for path in code_paths(values):
        if not path.is_file():
            raise UserError(f"{path}: is missing; restore it from a copy of the run")
        if sha256_of(path) != hashes.get(path.name):
            raise UserError(f"{path}: was changed after training; restore it from a copy")
        if sha256_of(path) not in _trusted():
            raise UserError(
                f"{path}: is code from elsewhere that would run on this machine; read it, then "
                "add --trust-code (in Python: trust_code=True)"
            )


def require_trusted(values: Any, *, where: str, named: Any = ()) -> None:
    """Raise for untrusted code that a recipe or grid names, but not the command line.

    `values` are those of the recipe or grid, `named` those of the command line.

    Raises:
        UserError: names the file.
    """
    for path in sorted(_named_files(values) - _named_files(named)):
        if path.is_file() and sha256_of(path) not in _trusted():
            raise UserError(
                f"{where}: names {path}, code that would run on this machine; read it, then add "
                "--trust-code, or name it in a setting too"
            )


def trust_named(path: Path) -> None:
    """Trust the files of code that a recipe or grid names, and the recipes in it, from now on.

    Raises:
        UserError: one of them can't be read.
    """
    waiting, read = [path], set[Path]()
    while waiting:
        read.add(path := waiting.pop())
        values = parse_toml(read_text(path), where=str(path))
        for named in sorted(_named_files(values)):
            if named.is_file():
                _trust(named)
        recipes = (values.get("recipe"), values.get("finetuning"))
        inner = {Path(name) for name in recipes if isinstance(name, str) and name.endswith(".toml")}
        waiting += sorted(inner - read)


def _named_files(values: Any) -> set[Path]:
    """Return the files of code in plain values, wherever a text may name FILE.py:CLASS.

    A name may hold any character, so some of these may not be files.
    """
    if isinstance(values, Mapping):
        return _named_files([*values.values()])
    if isinstance(values, str):
        ends = [match.end() - 1 for match in re.finditer(r"\.py:", values)]
        starts = [0, *(match.end() for match in re.finditer(r"""[\s=,+\[\]{}"']""", values))]
        near = ((i, end) for end in ends for i in starts if end - LONGEST_PATH < i < end)
        found = {Path(values[start:end]) for start, end in near}
        text = values.partition("=")[2]  # of an assignment, whose TOML may have escapes
        return found if (value := parse_value(text)) == text else found | _named_files(value)
    nested = values if isinstance(values, Sequence) else ()
    return {path for value in nested for path in _named_files(value)}


def trust_code(run: Path) -> None:
    """Trust the files of code that a run's configuration names from now on."""
    config = run / "config.toml"
    values = parse_toml(read_text(config), where=str(config)) if config.is_file() else {}
    for named in code_paths(values):
        if (path := run / FOLDER / named.name).is_file():
            _trust(path)


def _list() -> Path:
    """Return the path of the user's list of trusted files, one sha256 per line.

    Raises:
        UserError: there is no home folder.
    """
    if chosen := os.environ.get("REGARD_TRUSTED_CODE"):
        return Path(chosen)
    return user_folder("CONFIG", "REGARD_TRUSTED_CODE to a file") / "trusted_code"


def _trusted() -> set[str]:
    lines = _list().read_text("utf-8").splitlines() if _list().is_file() else []
    return {line.split()[0] for line in lines if line.strip()}


def _trust(path: Path) -> None:
    if (digest := sha256_of(path)) not in _trusted():
        _list().parent.mkdir(parents=True, exist_ok=True)
        with _list().open("a", encoding="utf-8") as file:
            file.write(f"{digest}  {path.name}\n")
