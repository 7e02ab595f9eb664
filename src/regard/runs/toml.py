"""Recipes as TOML: reading, overriding, and writing with a comment for each field."""

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

from regard.errors import UserError
from regard.models.config_base import Config
from regard.runs.fields import allowed_fields, allowed_values, field_docs, is_section
from regard.runs.recipe import Recipe
from regard.text.corpus import read_text

C = TypeVar("C", bound=msgspec.Struct)


def read_recipe(path: Path) -> Recipe:
    """A recipe from a TOML file.

    Raises:
        UserError: the file can't be read, is no TOML, or a field is unknown or impossible.
    """
    try:
        values = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: isn't TOML: {error}") from None
    if isinstance(model := values.get("model"), dict):
        model.setdefault("kind", "decoder")  # the only family that there was at first
    return convert(values, Recipe, where=str(path))


def override(config: C, assignments: Sequence[str], *, where: str = "command line") -> C:
    """The configuration with `section.field=value` assignments applied.

    Values are written as in TOML; what isn't TOML is text, so that `kind=words` needs no quotes.

    Raises:
        UserError: names the field and what is allowed there.
    """
    values = msgspec.to_builtins(config)
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        *sections, field = path.split(".")
        table = values
        for depth, section in enumerate(sections, start=1):
            unset = table.get(section) is None
            if unset and is_section(type(config), values, sections[:depth]):
                table[section] = {}  # it is given from here on
            if not isinstance(table.get(section), dict):
                raise UserError(f"{where}: {path}: there is no section {section!r}{_known(table)}")
            table = table[section]
        if field == "kind" and table.get("kind") != text:
            table.clear()  # another kind has fields of its own
        elif field not in table:
            known = allowed_fields(type(config), values, sections)
            if field not in known:
                raise UserError(f"{where}: {path}: there is no field {field!r}{_known(known)}")
        if field == "epochs" and "steps" in table:
            table["steps"] = None
        if field == "steps" and "epochs" in table:
            table["epochs"] = None
        table[field] = text if field == "kind" else _parse(text)
    return convert(values, type(config), where=where)


def convert(values: Any, type_: type[C], *, where: str) -> C:
    """Plain values to a configuration.

    Raises:
        UserError: names the field and what is allowed there.
    """
    try:
        return msgspec.convert(values, type_)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        raise UserError(
            f"{where}: {field + ': ' if field else ''}{_mend(message, type_, values, field)}"
        ) from None


def to_toml(config: msgspec.Struct, *, comments: bool = False) -> str:
    """The configuration as TOML, with the documentation of each field where wished."""
    if comments:
        return "\n".join(_commented(config, ())).strip() + "\n"
    return tomli_w.dumps(_without_none(msgspec.to_builtins(config)))


def _parse(text: str) -> Any:
    if text == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _known(names: Iterable[str]) -> str:
    return f"; there are: {', '.join(sorted(names))}"


def _mend(message: str, type_: type[msgspec.Struct], values: Any, field: str) -> str:
    """The message of msgspec, with what is allowed where it doesn't say that."""
    path = field.split(".") if field else []
    message = message[0].lower() + message[1:]
    if message.startswith("object contains unknown field"):
        return f"{message}; allowed: {', '.join(allowed_fields(type_, values, path))}"
    if message.startswith(("invalid value", "invalid enum value")):
        return f"{message}; allowed: {', '.join(allowed_values(type_, path))}"
    return message


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


def _commented(config: msgspec.Struct, path: tuple[str, ...]) -> list[str]:
    """TOML lines: the plain fields of this table first, then its tables."""
    docs, lines, tables = field_docs(type(config)), [], []
    tag = config.__struct_config__.tag
    if tag is not None:
        lines += [f'kind = "{tag}"']
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, Config):
            tables += ["", f"# {docs[name]}", f"[{'.'.join((*path, name))}]"]
            tables += _commented(value, (*path, name))
        elif value is None:
            lines += [f"# {docs[name]}", f"# {name} ="]
        else:
            lines += [f"# {docs[name]}", tomli_w.dumps({name: msgspec.to_builtins(value)}).strip()]
    return lines + tables
