"""Options shared by several commands, and the formats of their output."""

import json
import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.types import StringParamType

from regard.errors import UserError, alternatives

if TYPE_CHECKING:
    from rich.console import RenderableType


class NamedPath(click.Path):
    """A path in UTF-8 that isn't empty, as an unset variable is: that is the current folder."""

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("is empty; name a file or folder", param, ctx)
        path = os.fsdecode(super().convert(value, param, ctx))
        try:
            path.encode()
        except UnicodeEncodeError:  # JSON and safetensors can't name it
            shown = path.encode(errors="replace").decode()
            raise UserError(f"{shown}: its name isn't valid UTF-8; choose another") from None
        return Path(path)


class FilledText(StringParamType):
    """A name or text that isn't empty, as an unset variable of the shell is."""

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> str:
        if not str(value):
            self.fail("is empty; give a value", param, ctx)
        return str(super().convert(value, param, ctx))


class OutputFile(NamedPath):
    """Path of an output file, with one of `endings` if given; checked before the work begins.

    Nothing else on the command line may name the file: it would be read and written over.
    """

    def __init__(self, *endings: str) -> None:
        super().__init__()
        self.endings = endings

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise UserError(f"{path}: can't be written; name a file in a folder that exists")
        words = [] if ctx is None else ctx.find_root().obj or []
        if sum(_names(word, path) for word in words) > 1:
            raise UserError(f"{path}: is named twice; write to a file that isn't read")
        if self.endings and path.suffix not in self.endings:
            *others, last = self.endings
            named = f"{', '.join(others)} or {last}" if others else last
            raise UserError(f"{path}: this format can't be written; choose a name with {named}")
        return path


def _names(word: str, path: Path) -> bool:
    """Return whether a word of the command line, or its part behind =, is the name of a file."""
    names = [name for name in (word, word.partition("=")[2]) if name and "\0" not in name]
    return os.path.realpath(path) in map(os.path.realpath, names)


class NewFolder(NamedPath):
    """Path of a folder to create, which must not exist."""

    def convert(self, value: Any, param: Any, ctx: click.Context | None) -> Path:
        from regard.files import require_new

        path = super().convert(value, param, ctx)
        require_new(path)
        return path


class Choice(click.Choice[str]):
    """A choice that suggests the nearest value."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"{value}: {alternatives(str(value), self.choices)}"


F = TypeVar("F", bound=Callable[..., Any])

FILLED = FilledText()
PATH = NamedPath()
COUNT = click.IntRange(min=1)
SEEDS = click.IntRange(0, 2**32 - 1)

EDIT = click.option(
    "--edit",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file of edits to apply to the model.",
)
HISTORY = click.option(
    "--history",
    type=PATH,
    help="File with the earlier turns of the conversation, one record of JSONL.",
)
FOLDER = NamedPath(file_okay=False)
OUT = click.option("--out", type=PATH, required=True, help="Folder to create.")
NEW = click.option("--out", type=NewFolder(), required=True, help="Folder to create.")
JSON = click.option("--json", "json_file", type=OutputFile(), help="File to write the results to.")
RECIPE = click.option("--recipe", type=FILLED, help="Name of a recipe, or a TOML file.")
SEED = click.option("--seed", type=SEEDS, help="Random seed.")
SEED_0 = click.option("--seed", type=SEEDS, default=0, help="Random seed.")
DEVICE_CPU = click.option("--device", default="cpu", help="Device: auto, cpu, cuda, …")
COMPILE = click.option("--compile", is_flag=True, help="Compile the model; slow to start.")
TRUST_CODE = click.option(
    "--trust-code", is_flag=True, help="Run the custom code of a run, a recipe or a grid."
)
PARAPHRASE = click.option(
    "--paraphrase",
    "paraphrases",
    multiple=True,
    help="Another wording of the questions, {} for the subject; repeatable.",
)


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Combine options to one decorator; the help lists them in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


RUN = together(TRUST_CODE, click.argument("run", type=PATH))


def page(default: str) -> Callable[[F], F]:
    """Add --out, the page to write."""
    return click.option(
        "--out", type=OutputFile(".html"), default=Path(default), help="Page to write, .html."
    )


DOCUMENT_KINDS = Choice(["auto", "files", "paragraphs", "lines", "records"])
DOCUMENTS = together(
    click.option(
        "--documents",
        type=DOCUMENT_KINDS,
        default="auto",
        help="Documents of a text; auto: detected.",
    ),
    click.option(
        "--text", "field", metavar="COLUMN", default="text", help="Column or field with the text."
    ),
)


def environment_options(
    *,
    precision: str,
    precisions: tuple[str, ...] = ("auto", "float32", "bfloat16"),
    device: str = "auto",
) -> Callable[[F], F]:
    """Add --device, --precision and --threads, with a default precision and device."""
    return together(
        click.option("--device", default=device, help="Device: auto, cpu, cuda, …"),
        click.option(
            "--precision",
            type=Choice(precisions),
            default=precision,
            help="Precision of matrix products; auto: bfloat16 where it is faster.",
        ),
        click.option("--threads", type=COUNT, help="Number of CPU threads."),
    )


EXECUTION = together(
    COMPILE,
    environment_options(precision="auto", precisions=("auto", "float32", "bfloat16", "float64")),
)
"""The arguments of `ExecutionOptions.choose`."""


def print_wide(*renderables: "RenderableType", width: int = 200) -> None:
    """Print tables; outside a terminal, in lines of `width` characters."""
    from rich.console import Console

    console = Console()
    console = console if console.is_terminal else Console(width=width)
    console.print(*renderables)


def to_json(values: Any) -> str:
    """Return values as indented JSON."""
    return json.dumps(values, indent=1, ensure_ascii=False)


def write_json(path: Path | None, values: Any) -> None:
    """Write values to a JSON file, if one is named."""
    from regard.files import write_file

    if path is not None:
        write_file(path, f"{to_json(values)}\n".encode())


def trust_named(*files: str | Path | None, trust: bool) -> None:
    """If `trust`, trust the code named by those recipes and grids that are files."""
    from regard.runs.code import trust_named as trust_code_of

    for file in files if trust else ():
        if file is not None and Path(file).is_file():
            trust_code_of(Path(file))
