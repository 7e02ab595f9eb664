"""Code as the documentation prints it: blocks of pages, and commands."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

import click

from regard.cli.main import regard

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str = "") -> list[str]:
    """Return the blocks of code in a language; that of commands has no name."""
    return [code for name, code in FENCED.findall(page) if name == language]


def parse(line: str) -> tuple[click.Command, dict[str, Any]]:
    """Return the command of a line and the arguments that it has, all of them known."""
    name, *arguments = shlex.split(line, comments=True)
    assert name == "regard"
    command: click.Command = regard
    context = click.Context(command, info_name=name)
    while isinstance(command, click.Group):
        _, found, arguments = command.resolve_command(context, arguments)
        assert found is not None
        command, context = found, click.Context(found, info_name=found.name, parent=context)
    values, rest, _ = command.make_parser(context).parse_args(list(arguments))
    assert not rest
    given = {name: value for name, value in values.items() if isinstance(value, str | Sequence)}
    for parameter in command.params:
        value = given.get(parameter.name or "")
        assert not parameter.required or value, f"{parameter.name} is missing"
        if value and isinstance(parameter.type, click.Choice):
            assert value in parameter.type.choices
    return command, given
