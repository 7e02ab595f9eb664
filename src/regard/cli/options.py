"""Flags that several commands share, and what they mean to the library."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from regard.runs.config_tasks import TaskConfig
    from regard.runs.machine import Machine
    from regard.runs.recipe import Recipe
    from regard.tasks.questions import Question
    from regard.training.loop import Settings

F = TypeVar("F", bound=Callable[..., Any])

OUT = click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to make.")
JSON = click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Write the figures to this file."
)
RECIPE = click.option("--recipe", default=None, help="Name of a recipe, or a TOML file.")
RESUME = click.option("--resume", is_flag=True, help="Go on where the run in --out stopped.")
SEED = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=None, help="Seed of all draws."
)
RUN = click.argument("run", type=click.Path(path_type=Path))


def machine_options(*, precision: str) -> Callable[[F], F]:
    """--device, --precision and --threads, with the command's usual precision."""

    def add(command: F) -> F:
        for option in (
            click.option(
                "--threads", type=click.IntRange(min=1), default=None, help="CPU threads."
            ),
            click.option(
                "--precision",
                type=click.Choice(["auto", "float32", "bfloat16"]),
                default=precision,
                show_default=True,
                help="Of matrix products; auto: bfloat16 where the hardware has it.",
            ),
            click.option(
                "--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, … or auto."
            ),
        ):
            command = option(command)
        return command

    return add


def choose_machine(device: str, precision: Any, threads: int | None) -> "Machine":
    """The machine that the flags ask for."""
    import torch

    from regard.runs.machine import Machine

    if threads is not None:
        torch.set_num_threads(threads)
    return Machine.choose(device, precision)


COMPILE = click.option(
    "--compile", "compile_", is_flag=True, help="Compile the model (slow start)."
)


def settings(device: str, precision: str, threads: int | None, compile_: bool) -> "Settings":
    """How to train, as the flags ask."""
    from regard.training.loop import Settings

    return Settings(machine=choose_machine(device, precision, threads), compile=compile_)


def choose_recipe(
    name: str | None, default: str, overrides: Sequence[str], seed: int | None
) -> "Recipe":
    """A named recipe or a file, with overrides and seed applied."""
    from regard.errors import UserError
    from regard.runs.recipes import RECIPES
    from regard.runs.toml import override, read_recipe

    name = name or default
    if name in RECIPES:
        recipe = RECIPES[name]
    elif Path(name).suffix == ".toml" or Path(name).exists():
        recipe = read_recipe(Path(name))
    else:
        raise UserError(
            f"--recipe {name}: no such recipe or file; there are: {', '.join(sorted(RECIPES))}"
        )
    return override(recipe, [*overrides, *([] if seed is None else [f"seed={seed}"])])


def split_overrides(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Files, at least one, and `section.field=value` assignments."""
    from regard.errors import UserError

    files, assignments = split_optional(arguments)
    if not files:
        raise UserError("there is no file to train on; name one")
    return files, assignments


def split_optional(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Files, if any, and `section.field=value` assignments, which need not exist as files."""
    assignments = [a for a in arguments if "=" in a and not Path(a).exists()]
    return [Path(a) for a in arguments if a not in assignments], assignments


def read_examples(path: Path, task: "TaskConfig | None") -> "list[Question]":
    """A user's examples of a task; of casing, any text makes some."""
    from regard.errors import UserError
    from regard.runs.config_tasks import CasingConfig, TextTask
    from regard.tasks.casing import case_pairs, uneven_characters
    from regard.tasks.catalogue import task_of
    from regard.tasks.questions import read_questions
    from regard.text.corpus import read_corpus

    if path.suffix != ".txt" or not isinstance(task, CasingConfig):
        return task_of(task).read(path) if isinstance(task, TextTask) else read_questions(path)
    texts = read_corpus([path])
    if uneven := uneven_characters(texts):
        listed = ", ".join(f"{character} ({n})" for character, n in uneven.most_common())
        click.echo(f"left out, for they become several in the other case: {listed}")
    if not (pairs := case_pairs(texts, task.place)):
        raise UserError(f"{path}: holds nothing that stays as long in the other case; add a text")
    return pairs


def write_json(path: Path | None, values: Any) -> None:
    """Write values to a JSON file, if one is wished."""
    import json

    from regard.runs.files import write_file

    if path is not None:
        write_file(path, (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())


def check_places(*paths: Path | None) -> None:
    """Refuse files that can't be written, before the work rather than after it."""
    from regard.errors import UserError

    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise UserError(f"{path}: can't be written; name a file in a folder that exists")
