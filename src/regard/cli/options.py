"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from regard.errors import UserError, alternatives


class OutputFile(click.Path):
    """A file to write, checked before the work begins."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Path:
        path = Path(value)
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise UserError(f"{path}: can't be written; name a file in a folder that exists")
        return path


class Choice(click.Choice[str]):
    """A choice that suggests the nearest value."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"{value}: {alternatives(str(value), self.choices)}"


F = TypeVar("F", bound=Callable[..., Any])

OUT = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder to create."
)
JSON = click.option("--json", "json_file", type=OutputFile(), help="File to write the results to.")
RECIPE = click.option("--recipe", default=None, help="Name of a recipe, or a TOML file.")
RESUME = click.option("--resume", is_flag=True, help="Resume the run in --out.")
SEEDS = click.IntRange(0, 2**32 - 1)
SEED = click.option("--seed", type=SEEDS, help="Random seed.")
SEED_0 = click.option("--seed", type=SEEDS, default=0, show_default=True, help="Random seed.")


RUN = click.argument("run", type=click.Path(path_type=Path))
TRUST_CODE = click.option(
    "--trust-code", is_flag=True, help="Run the custom code in the run folder."
)


def environment_options(*, precision: str) -> Callable[[F], F]:
    """Add --device, --precision and --threads, with a default precision."""

    def add(command: F) -> F:
        for option in (
            click.option(
                "--threads", type=click.IntRange(min=1), default=None, help="Number of CPU threads."
            ),
            click.option(
                "--precision",
                type=Choice(["auto", "float32", "bfloat16"]),
                default=precision,
                show_default=True,
                help="Precision of matrix products; auto: bfloat16 if the hardware supports it.",
            ),
            click.option(
                "--device",
                default="auto",
                show_default=True,
                help="Device: auto, cpu, cuda, …",
            ),
        ):
            command = option(command)
        return command

    return add


COMPILE = click.option(
    "--compile", "compile_", is_flag=True, help="Compile the model; slow to start."
)


def write_json(path: Path, values: Any) -> None:
    """Write values to a JSON file."""
    import json

    from regard.files import write_file

    write_file(path, (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())
