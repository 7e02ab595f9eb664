"""What the fields of a configuration mean and may hold, read from its classes."""

import ast
import inspect
from collections.abc import Sequence
from functools import cache, reduce
from textwrap import dedent
from typing import Any, get_args, get_type_hints

from msgspec import Struct


@cache
def field_docs(type_: type) -> dict[str, str]:
    """The docstring under each field of a struct and of its bases, in one line."""
    docs: dict[str, str] = {}
    for base in reversed(type_.__mro__):
        if issubclass(base, Struct) and base is not Struct:
            docs |= _own_docs(base)
    return docs


def _own_docs(type_: type) -> dict[str, str]:
    (definition,) = ast.parse(dedent(inspect.getsource(type_))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            assert isinstance(text.value, ast.Constant)
            docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs


def allowed_fields(type_: type[Struct], values: Any, path: Sequence[str]) -> list[str]:
    """The fields of the section at a path, of the kind that the values choose there."""
    kind = _at(values, path).get("kind")
    sections = _structs_at(type_, path)
    chosen = [s for s in sections if s.__struct_config__.tag == kind] or sections
    names = dict.fromkeys(name for section in chosen for name in section.__struct_fields__)
    return list(names) or ["none but kind"]


def is_section(type_: type[Struct], values: Any, path: Sequence[str]) -> bool:
    """Whether a struct may stand at a path, by the kinds that the values choose on the way."""
    *sections, name = path
    return name in allowed_fields(type_, values, sections) and bool(_structs_at(type_, path))


def allowed_values(type_: type[Struct], path: Sequence[str]) -> list[str]:
    """The values that a field may take, where they can be counted: kinds, or a list of words."""
    *sections, field = path
    owners = _structs_at(type_, sections)
    if field == "kind":
        return list(dict.fromkeys(str(owner.__struct_config__.tag) for owner in owners))
    hints = [get_type_hints(owner).get(field) for owner in owners]
    return list(dict.fromkeys(str(value) for hint in hints for value in get_args(hint)))


def _structs_at(type_: type[Struct], path: Sequence[str]) -> list[type[Struct]]:
    """The structs that may stand at a path of fields."""
    members: list[Any] = [type_]
    for name in path:
        hints = [get_type_hints(m)[name] for m in members if name in get_type_hints(m)]
        members = [m for hint in hints for m in (get_args(hint) or (hint,))]
    return [m for m in members if isinstance(m, type) and issubclass(m, Struct)]


def _at(values: Any, path: Sequence[str]) -> dict[str, Any]:
    table: dict[str, Any] = reduce(lambda table, name: table[name], path, values)
    return table
