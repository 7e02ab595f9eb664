"""Configurations as TOML with the documentation of their fields."""

import ast
import inspect
from functools import cache
from textwrap import dedent
from typing import Any

import msgspec
import tomli_w

from regard.config import Config, without_none


def to_commented_toml(config: Config) -> str:
    """Return the configuration as TOML, with the documentation of each field."""
    return "\n".join(_commented(config, ())).strip() + "\n"


def _commented(config: Config, path: tuple[str, ...]) -> list[str]:
    """Return TOML lines: the plain fields of this table first, then its tables."""
    docs, lines, tables = field_docs(type(config)), [], []
    tag = config.__struct_config__.tag
    if tag is not None:
        lines += [tomli_w.dumps({"kind": tag}).strip()]
    for name in config.__struct_fields__:
        value = getattr(config, name)
        doc = [f"# {docs[name]}"] if name in docs else []  # custom structs may have none
        if isinstance(value, Config):
            tables += ["", *doc, f"[{'.'.join((*path, name))}]"]
            tables += _commented(value, (*path, name))
        elif value is None:
            lines += [*doc, f"# {name} ="]
        elif value and isinstance(value, tuple) and isinstance(value[0], Config):
            for entry in without_none(msgspec.to_builtins(value)):
                tables += ["", *doc, *_entry_lines(entry, ".".join((*path, name)))]
        else:
            lines += [*doc, tomli_w.dumps({name: msgspec.to_builtins(value)}).strip()]
    return lines + tables


def _entry_lines(values: dict[str, Any], path: str, header: str = "[[{}]]") -> list[str]:
    """Return TOML lines of an entry of a list at a path, and of the tables in it."""
    tables = {name: value for name, value in values.items() if isinstance(value, dict)}
    plain = tomli_w.dumps({name: value for name, value in values.items() if name not in tables})
    inner = (_entry_lines(table, f"{path}.{name}", "[{}]") for name, table in tables.items())
    return [header.format(path), plain.strip(), *(line for lines in inner for line in lines)]


@cache
def field_docs(type_: type[Config]) -> dict[str, str]:
    """Return the docstring under each field of a struct and of its bases, in one line.

    A struct that is made at run time has them in `option_docs`.
    """
    docs: dict[str, str] = {}
    for base in reversed(type_.__mro__):
        if issubclass(base, Config):
            docs |= _own_docs(base)
    return docs


def _own_docs(type_: type) -> dict[str, str]:
    if "option_docs" in vars(type_):
        return dict(vars(type_)["option_docs"])
    (definition,) = ast.parse(dedent(inspect.getsource(type_))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs
