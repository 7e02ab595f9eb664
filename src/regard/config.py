"""Configuration: structs with documented fields, read from plain values and changed by settings.

A configuration is a frozen struct, with a docstring under each field. It is read from TOML, changed
by `section.field=value` assignments, and written as TOML, with comments by `toml.py`.
"""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, reduce
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import tomli_w
from msgspec import Meta

from regard.errors import UserError, alternatives, require_list, suggestion

LARGEST = 10**9
"""Upper bound of numbers without one of their own; no machine has the memory for more."""
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
LONGEST = 2**24
"""Longest sequence, in tokens."""
MOST_STEPS = 10**8
"""Largest number of steps of a training; each takes 16 bytes of memory from the beginning."""
Count = Annotated[int, Meta(ge=0)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]
Probability = Annotated[float, Meta(ge=0, lt=1)]
Fraction = Annotated[float, Meta(ge=0, le=1)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all configuration: frozen, keyword-only, without unknown fields."""

    alternatives: ClassVar[frozenset[str]] = frozenset()
    """Optional fields that exclude one another: an assignment to one unsets the others."""

    @classmethod
    def list_of(cls, field: str, values: dict[str, Any]) -> "tuple[type[Config], list[Any]] | None":
        """Return the struct and the plain values of a list whose entries `field.N` names, if any.

        `values` are those of a configuration of this class; an assignment changes the list.
        """
        return None

    @classmethod
    def from_text(cls, field: str, text: str) -> Any:
        """Return the plain value of a field for which there is a short form."""
        return text


class OpenConfig:
    """Base of a section with an open set of kinds: each kind is a struct of this base."""

    __slots__ = ()

    @classmethod
    def struct(cls, kind: str) -> type[Config]:
        """Return the struct of a kind.

        Raises:
            UserError: there is none.
        """
        raise NotImplementedError

    @classmethod
    def kinds(cls) -> list[str]:
        """Return the kinds that can be listed."""
        raise NotImplementedError


C = TypeVar("C", bound=Config)


# Reading


def parse_toml(text: str, *, where: str) -> dict[str, Any]:
    """Return the values of a TOML document.

    Raises:
        UserError: the text isn't TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of huge numbers and deep nesting
        raise UserError(f"{where}: isn't TOML: {error}") from None


def convert(values: Any, type_: type[C], *, where: str) -> C:
    """Convert plain values to a configuration.

    Raises:
        UserError: names the field and the allowed values.
    """
    try:
        return msgspec.convert(values, type_, dec_hook=_decode)
    except msgspec.ValidationError as error:
        message, *paths = str(error).split(" - at `$")  # of open sections, from the inside
        field = "".join(path.rstrip("`") for path in reversed(paths)).lstrip(".")
        raise UserError(
            f"{where}: {field + ': ' if field else ''}{_mend(message, type_, values, field)}"
        ) from None


def _decode(type_: type, value: Any) -> Any:
    """Decode an open section (a hook of msgspec)."""
    if not issubclass(type_, OpenConfig):
        raise NotImplementedError(f"a field can't be a {type_.__name__}")
    if isinstance(value, type_):
        return value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError("a section with a kind is expected")
    try:
        struct = type_.struct(value["kind"])
    except UserError as error:
        raise ValueError(f"{error} - at `$.kind`") from None
    try:
        return msgspec.convert(value, struct, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _mend(message: str, type_: type[Config], values: Any, field: str) -> str:
    """Complete a message of msgspec with the allowed fields or values where it lacks them."""
    path = re.sub(r"\[(\d+)\]", r".\1", field).split(".") if field else []
    if message.startswith(("Expected ", "Integer ", "Invalid ", "Object ")):  # of msgspec itself
        message = message[0].lower() + message[1:].replace("enum value", "value", 1)
    if message.startswith("expected `"):
        return _explain(message, type_, values, path)
    if message.startswith("object contains unknown field"):
        allowed = allowed_fields(type_, values, path)
    elif message.startswith("invalid value"):
        allowed = allowed_values(type_, path)
    else:
        return message
    name = re.search("[`'](.*)[`']", message)
    near = suggestion(name[1], allowed) if name else ""
    return f"{message}; allowed: {', '.join(allowed)}{near}"


_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a section",
    "null": "none",
}
"""Names of types in messages."""


def _explain(message: str, type_: type[Config], values: Any, path: Sequence[str]) -> str:
    """Return a message of msgspec about a type or a bound in plain words, with the value."""
    expected, _, got = message.partition(", got ")
    bound = value = ""
    with suppress(LookupError, TypeError):  # of a part of a list
        *sections, field = path
        table: dict[str, Any] = reduce(_inside, sections, values)
        value = "none" if table[field] is None else f"{table[field]!r:.40}"
        if got.startswith("`") and re.match("expected `(int|float)", message):
            owners = _chosen(type_, values, sections)
            bound = _bound([get_type_hints(owner, include_extras=True)[field] for owner in owners])

    def name(kinds: re.Match[str]) -> str:
        first, *others = (_TYPES.get(kind, kind) for kind in kinds[1].split(" | "))
        return " or ".join([first + bound, *others])

    return re.sub("`(.*?)`", name, expected) + (f", not {value}" if value else "")


def _bound(hints: Sequence[Any]) -> str:
    """Return the lower bound in annotations, the first if there are several."""
    for hint in hints:
        if isinstance(hint, Meta) and (hint.ge, hint.gt) != (None, None):
            return f" >= {hint.ge:g}" if hint.gt is None else f" > {hint.gt:g}"
        if found := _bound(get_args(hint)):
            return found
    return ""


def map_kinds(values: Any, change: Callable[[str], str]) -> Any:
    """Return plain values with each kind that is FILE.py:CLASS changed."""
    if isinstance(values, dict):
        return {
            name: change(value)
            if name == "kind" and isinstance(value, str) and ".py:" in value
            else map_kinds(value, change)
            for name, value in values.items()
        }
    if isinstance(values, list | tuple):
        return [map_kinds(value, change) for value in values]
    return values


def code_paths(values: Any) -> list[Path]:
    """Return the files of code that plain values name as FILE.py:CLASS."""
    paths: dict[Path, None] = {}

    def note(kind: str) -> str:
        paths[Path(kind.rpartition(":")[0])] = None
        return kind

    map_kinds(values, note)
    return list(paths)


def file_name(kind: str) -> str:
    """Return a kind FILE.py:CLASS without the file's folder."""
    path, _, name = kind.rpartition(":")
    return f"{Path(path).name}:{name}"


# Overriding


def override(config: C, assignments: Sequence[str], *, where: str = "command line") -> C:
    """Return the configuration with `section.field=value` assignments applied.

    Values are parsed as TOML; other values are text, so that `kind=words` needs no quotes.

    Raises:
        UserError: names the field and the allowed values.
    """
    require_list(assignments, "settings")
    values = msgspec.to_builtins(config)
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        try:
            assignment.encode()
        except UnicodeEncodeError:
            raise UserError(f"{where}: {assignment!a}: isn't UTF-8") from None
        if not path.strip():
            raise UserError(
                f"{where}: {assignment}: names no field; write section.field=value without spaces"
            )
        try:
            _assign(type(config), values, path.split("."), text)
        except UserError as error:
            raise UserError(f"{where}: {path}: {error}") from None
    return convert(values, type(config), where=where)


def _assign(type_: type[Config], values: dict[str, Any], path: Sequence[str], text: str) -> None:
    """Change one value in place."""
    if index := next((i for i, name in enumerate(path) if name.isdecimal()), 0):
        entry_type, entry = _entry(type_, values, path[:index], path[index:])
        _assign(entry_type, entry, path[index + 1 :], text)
        return
    *sections, field = path
    table = _open_section(type_, values, sections)
    if field == "kind":
        if table.get("kind") != text:
            table.clear()  # the fields of another kind differ
        table["kind"] = text
        return
    known = allowed_fields(type_, values, sections)
    if field not in table and field not in known:
        raise UserError(f"no such field; {alternatives(field, sorted(known))}")
    for owner in _structs_at(type_, sections, table.get("kind")):
        if field in owner.alternatives:
            table |= dict.fromkeys(owner.alternatives - {field})
    value = parse_value(text)
    owners = _structs_at(type_, sections, table.get("kind"))
    owner = next((one for one in owners if field in one.__struct_fields__), Config)
    hint = _hints(owner).get(field)
    is_number = isinstance(value, int | float) and hint in (str, str | None)
    if is_number or text in get_args(hint):
        value = text  # a column 2, a folder 2026, the choice "none"
    if isinstance(value, str):
        value = owner.from_text(field, value)
    if isinstance(value, str | int | float) and _is_section(type_, values, path):
        kinds = [struct.__struct_config__.tag for struct in _structs_at(type_, path)]
        hint = f"kind={text}" if any(kinds) else "FIELD=VALUE"
        raise UserError(f"is a section, not a value; write {'.'.join(path)}.{hint}")
    table[field] = value


def _entry(
    type_: type[Config], values: dict[str, Any], path: Sequence[str], rest: Sequence[str]
) -> tuple[type[Config], dict[str, Any]]:
    """Return the struct and the table of an entry of a list; `rest` is its index and what follows.

    A section that the entry lacks begins as a copy of that of the struct with the list.
    """
    *sections, name = path
    index, *inside = rest
    table = _open_section(type_, values, sections)
    owners = _structs_at(type_, sections, table.get("kind"))
    found = next((made for owner in owners if (made := owner.list_of(name, table))), None)
    if found is None or not found[1]:
        raise UserError(f"{name} has no entries; leave out .{index}")
    entry_type, entries = found
    if len(index) > 9 or int(index) >= len(entries):
        raise UserError(f"the last entry is {name}.{len(entries) - 1}")
    if not inside:
        raise UserError(f"is a section, not a value; write {'.'.join(path)}.{index}.FIELD=VALUE")
    entry = entries[int(index)]
    if len(inside) > 1 and entry.get(inside[0]) is None and isinstance(table.get(inside[0]), dict):
        entry[inside[0]] = dict(table[inside[0]])
    return entry_type, entry


def _open_section(
    type_: type[Config], values: dict[str, Any], sections: Sequence[str]
) -> dict[str, Any]:
    """Return the table at a path; an optional section that isn't set becomes an empty table."""
    table = values
    for depth, section in enumerate(sections, start=1):
        if table.get(section) is None and _is_section(type_, values, sections[:depth]):
            table[section] = {}
        if not isinstance(table.get(section), dict):
            known = table or allowed_fields(type_, values, sections[: depth - 1])
            names = alternatives(section, sorted(known))
            raise UserError(f"no section {section!r}; {names}")
        table = table[section]
    return table


def parse_value(text: str) -> Any:
    """Return the value of an assignment: TOML, none, or else the text itself."""
    if text == "none":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


# Fields


def allowed_fields(type_: type[Config], values: Any, path: Sequence[str]) -> list[str]:
    """Return the fields of the section at a path, of the kind chosen there by the values."""
    chosen = _chosen(type_, values, path)
    names = dict.fromkeys(name for section in chosen for name in section.__struct_fields__)
    return list(names) or ["none but kind"]


def _chosen(type_: type[Config], values: Any, path: Sequence[str]) -> list[type[Config]]:
    """Return the structs that may stand at a path, of the kind chosen there by the values."""
    table: dict[str, Any] = reduce(_inside, path, values)
    sections = _structs_at(type_, path, table.get("kind"))
    return [s for s in sections if s.__struct_config__.tag == table.get("kind")] or sections


def allowed_values(type_: type[Config], path: Sequence[str]) -> list[str]:
    """Return the values that a field may take, if they can be counted: kinds, or literals."""
    *sections, field = path
    owners = _structs_at(type_, sections)
    tags = [owner.__struct_config__.tag for owner in owners]
    if field == "kind" and any(tags):
        return list(dict.fromkeys(map(str, tags)))
    hints = [_hints(owner).get(field) for owner in owners]
    return list(dict.fromkeys(value for hint in hints for value in _choices(hint)))


@cache
def _hints(type_: type) -> dict[str, Any]:
    """Return the types of the fields of a class, which take milliseconds to resolve."""
    return get_type_hints(type_)


def _choices(hint: Any) -> list[str]:
    """Return the values that a type lists, also inside a union."""
    return [
        choice
        for value in get_args(hint)
        for choice in _choices(value) or ["none" if value is type(None) else str(value)]
    ]


def _inside(values: Any, name: str) -> Any:
    """Return a field of a table, or an entry of a list."""
    return values[int(name)] if isinstance(values, list | tuple) else values[name]


def _is_section(type_: type[Config], values: Any, path: Sequence[str]) -> bool:
    """Whether a struct may stand at a path, given the kinds chosen on the way."""
    *sections, name = path
    hints = (_hints(owner).get(name) for owner in _structs_at(type_, sections))
    is_list = any(get_origin(hint) is tuple for hint in hints)
    known = name in allowed_fields(type_, values, sections)
    return known and not is_list and bool(_structs_at(type_, path))


def _members(hint: Any) -> list[Any]:
    """Return the types of a union or of a list's entries, which may be a union."""
    inside = get_args(hint)
    return [member for arg in inside for member in _members(arg)] if inside else [hint]


def _structs_at(
    type_: type[Config], path: Sequence[str], kind: str | None = None
) -> list[type[Config]]:
    """Return the structs that may stand at a path of fields, or be the entries of a list there.

    Of an open section, it is the struct of a kind.
    """
    members: list[Any] = [type_]
    for name in path:
        if name.isdecimal():  # of an entry of a list
            continue
        fields = [_hints(m) for m in members if isinstance(m, type)]
        hints = [each[name] for each in fields if name in each]
        members = [member for hint in hints for member in _members(hint)]
    structs: list[type[Config]] = []
    for member in members:
        if isinstance(member, type) and issubclass(member, Config):
            structs.append(member)
        elif isinstance(member, type) and issubclass(member, OpenConfig):
            structs += [member.struct(k) for k in ([kind] if kind else member.kinds())]
    return structs


def to_toml(config: Config) -> str:
    """Return the configuration as TOML; files of code are named without their folder."""
    values = map_kinds(msgspec.to_builtins(config), file_name)
    return tomli_w.dumps(without_none(values))


def flatten(
    table: Mapping[str, Any], whole: Collection[str] = (), prefix: str = ""
) -> dict[str, Any]:
    """Return the values of nested tables by dotted names; tables named in `whole` stay values."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, Mapping) and name not in whole:
            found |= flatten(value, whole, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def without_none(values: Any) -> Any:
    """Return plain values without the fields that are None, which TOML can't write."""
    if isinstance(values, dict):
        return {name: without_none(x) for name, x in values.items() if x is not None}
    if isinstance(values, list | tuple):
        return [without_none(value) for value in values]
    return values
