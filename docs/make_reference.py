"""Write docs/reference and the tables of other pages. `make reference`."""

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec
import public_api
from mechanism_sources import SOURCES
from public_api import cell

from regard.attention.config import BUILT_IN
from regard.attention.registry import find
from regard.cli.main import regard
from regard.config import LARGEST, Config, OpenConfig
from regard.exercises.registry import EXERCISES
from regard.runs.recipe import Recipe
from regard.toml import field_docs

DOCS = Path(__file__).parent
EXERCISES_TABLE = re.compile(r"(?<=<!-- exercises -->\n).*?(?=<!-- /exercises -->)", re.DOTALL)
TABLE = re.compile(r"(?<=<!-- mechanisms -->\n).*?(?=<!-- /mechanisms -->)", re.DOTALL)


def main() -> None:
    """Write all pages."""
    (DOCS / "reference").mkdir(exist_ok=True)
    for name, page in pages().items():
        (DOCS / name).write_text(page, encoding="utf-8")
    public_api.main()


def pages() -> dict[str, str]:
    """Return the text of each page, by its path in docs."""
    return {
        "reference/commands.md": commands_page(),
        "reference/configuration.md": configuration_page(),
        "attention.md": attention_page(),
        "course-exercises.md": exercises_page(),
    }


# Exercises


def exercises_page() -> str:
    """Return course-exercises.md with a table of the exercises."""
    text = (DOCS / "course-exercises.md").read_text(encoding="utf-8")
    return EXERCISES_TABLE.sub(lambda _: exercises_table(), text)


def exercises_table() -> str:
    """Return a Markdown table of the exercises, with the mistakes that get a hint."""
    lines = ["| course, part | exercise | points | mistakes that get a hint |", "|---|---|---|---|"]
    for course, exercises in EXERCISES.items():
        for exercise in exercises:
            hints = " ".join(mistake.hint for mistake in exercise.mistakes)
            cells = f"{course} {exercise.part}", exercise.title, str(exercise.points), cell(hints)
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


# Attention mechanisms


def attention_page() -> str:
    """Return attention.md with a table of the built-in mechanisms."""
    text = (DOCS / "attention.md").read_text(encoding="utf-8")
    return TABLE.sub(lambda _: mechanisms_table(), text)


FEATURE_TITLES = {
    "alignment": "causal",
    "bidirectional": "bidirectional",
    "window_size": "windows",
    "key_lengths": "padding",
    "document_ids": "documents",
    "blocks": "blocks",
    "allowed": "any mask",
    "bias": "bias",
    "vectors": "vectors",
    "dropout": "dropout",
    "cross": "cross",
    "decoding": "decoding",
    "kv_heads": "shared key/value heads",
    "qk_norm": "`qk_norm`",
    "short_conv": "`short_conv`",
    "added_values": "`value_residual`, `value_embedding`",
}
"""Features of the column *not supported*: a field of `Mask` or `Support`, and its name there."""


def mechanisms_table() -> str:
    """Return a Markdown table of the built-in mechanisms."""
    titles = ["kind", "formula", "time", "state", "not supported", "paper", "code", "models"]
    rows = [titles, ["---"] * len(titles)]
    for kind in BUILT_IN:
        config, source = find(kind).config, SOURCES[kind]
        supports = config.supports
        missing = [title for field, title in FEATURE_TITLES.items() if not supports.has(field)]
        rows.append(
            [
                f"`{kind}`",
                cell(source.formula),
                config.time,
                config.state or "–",
                ", ".join(missing) or "–",
                f"[{config.paper}]({source.paper})",
                source.code_link,
                source.models or "–",
            ]
        )
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


# Commands


def commands_page() -> str:
    """Every command: usage, description, options."""
    top = click.Context(regard, info_name="regard", show_default=True)
    sections = [part for command, ctx in _commands(regard, top) for part in _section(command, ctx)]
    head = ["# Commands", "", "*Written by `make reference` from the commands themselves.*"]
    return "\n".join([*head, *sections]) + "\n"


def _commands(
    group: click.Group, parent: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """All commands below a group, depth first."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        ctx = click.Context(command, info_name=name, parent=parent, max_content_width=10_000)
        yield command, ctx
        if isinstance(command, click.Group):
            yield from _commands(command, ctx)


def _section(command: click.Command, ctx: click.Context) -> list[str]:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    paragraphs = " ".join((command.help or "").split())
    lines = ["", f"## {ctx.command_path}", "", "```", usage, "```", "", paragraphs]
    records = [
        record
        for option in command.params
        if isinstance(option, click.Option) and (record := option.get_help_record(ctx))
    ]
    rows = [f"| `{cell(option)}` | {cell(text)} |" for option, text in records]
    return [*lines, "", "| option | meaning |", "|---|---|", *rows] if rows else lines


# Configuration


def configuration_page() -> str:
    """Every field of a recipe: its values, its default, its meaning."""
    head = [
        "# Configuration",
        "",
        "A recipe is a TOML file of these fields; on the command line, each is set as",
        "`section.field=value`. `regard config --recipe NAME` prints a whole recipe.",
        "",
        "*Written by `make reference` from the configuration itself.*",
    ]
    found = _sections(Recipe)
    return "\n".join([*head, *(line for type_ in found for line in _table(type_, found))]) + "\n"


Places = dict[type[Config], list[str]]
"""Structs, each with the sections of a recipe that may hold it."""


def _sections(root: type[Config]) -> Places:
    """All structs of a configuration, depth first."""
    found: Places = {}

    def visit(type_: type[Config], path: str) -> None:
        known = type_ in found
        paths = found.setdefault(type_, [])
        if path not in paths:
            paths.append(path)
        if not known:
            for name, hint in get_type_hints(type_).items():
                for struct in _structs(hint):
                    visit(struct, f"{path}.{name}".lstrip("."))

    visit(root, "")
    return found


def _table(type_: type[Config], places: Places) -> list[str]:
    """The fields of a struct."""
    docs, hints = field_docs(type_), get_type_hints(type_, include_extras=True)
    lines = ["", f"## {_title(type_, places)}", "", cell((type_.__doc__ or "").partition("\n")[0])]
    if len(places[type_]) > 1:
        others = ", ".join(f"`{path}`" for path in places[type_][1:])
        lines += ["", f"The same fields: {others}."]
    rows = []
    for field in msgspec.structs.fields(type_):
        kinds = [_link(struct, places) for struct in _structs(hints[field.name])]
        is_list = get_origin(hints[field.name]) is tuple
        listed = f"list of {', '.join(kinds)}" if is_list and kinds else ", ".join(kinds)
        values = listed or _values(hints[field.name])
        cells = (f"`{field.name}`", values, _default(field), cell(docs[field.name]))
        rows.append(f"| {' | '.join(cells)} |")
    return (
        [*lines, "", "| field | values | default | meaning |", "|---|---|---|---|", *rows]
        if rows
        else lines
    )


def _title(type_: type[Config], places: Places) -> str:
    path, kind = places[type_][0] or "recipe", type_.__struct_config__.tag
    return f"{path}: {kind}" if kind else path


def _link(type_: type[Config], places: Places) -> str:
    """A link to a section, by the anchor that GitHub gives its heading."""
    title = _title(type_, places)
    anchor = "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")
    return f"[{type_.__struct_config__.tag or 'section'}](#{anchor})"


def _structs(hint: Any) -> list[type[Config]]:
    """The structs that a field may hold, alone or in a list."""
    inside = (Union, types.UnionType, tuple)
    members = get_args(hint) if get_origin(hint) in inside else (hint,)
    classes = [member for member in members if isinstance(member, type)]
    opened = [c.struct(kind) for c in classes if issubclass(c, OpenConfig) for kind in c.kinds()]
    return opened or [c for c in classes if issubclass(c, Config)]


def _values(hint: Any) -> str:
    """What a field may hold, in words."""
    origin, members = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [text for meta in members[1:] if (text := _bounds(meta))]
        return ", ".join([_values(members[0]), *bounds])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in members)
    if origin in (Union, types.UnionType):
        return " or ".join(_values(member) for member in members)
    if origin is tuple:
        several = members[-1] is Ellipsis
        return f"list of {_values(members[0])}" if several else f"{len(members)} values"
    names = {int: "integer", float: "number", str: "text", bool: "`true` or `false`"}
    return "none" if hint is type(None) else names.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(meta: Any) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found = [
        f"{sign} {bound:,}"
        for name, sign in signs.items()
        if (bound := getattr(meta, name, None)) not in (None, LARGEST)
    ]
    return ", ".join(found)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return ""
    if field.default is msgspec.NODEFAULT:
        return "required"
    value = msgspec.to_builtins(field.default)
    if isinstance(value, dict):
        return f"`{value['kind']}`" if "kind" in value else ""
    return "none" if value is None else f"`{msgspec.json.encode(value).decode()}`"


if __name__ == "__main__":
    main()
