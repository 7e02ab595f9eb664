"""Grids: axes of a comparison, and a recipe for each combination of their values.

An axis is a field of the recipe with values, as text: `model.attention.kind=softmax,elu`. Each
combination of values of the compared axes (`over`) is a row of the table. For each row, the values
of the tuned axes (`tune`) with the best validation score are chosen.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from regard.comparison.config import ExecutorConfig, LocalConfig
from regard.config import Config, Positive, convert, flatten, override, parse_toml
from regard.errors import UserError, alternatives
from regard.files import read_text
from regard.runs.code import require_trusted
from regard.runs.recipe import Recipe
from regard.runs.recipes import TASKS, find_recipe

UNCONFIRMED = 1000
"""Largest number of cells of a grid that needs no confirmation."""

MatchedCost = Literal["parameters", "state"]

Values = dict[str, str]
"""Path of an axis → value, as in an assignment."""


class CellSettings(Config, frozen=True):
    """Execution options of each cell; part of its fingerprint, as results depend on them."""

    threads: Positive = 1
    """CPU threads of a cell."""
    device: str = "auto"
    """Device of a cell: auto, cpu, cuda, …"""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Precision of matrix products; auto: bfloat16 where it is faster."""


class Axes(Config, frozen=True):
    """Settings and axes of a grid, or those that the grids of a suite have in common."""

    settings: tuple[str, ...] = ()
    """Settings of all cells, such as "model.short_conv=4"."""
    over: dict[str, Any] = msgspec.field(default_factory=dict)
    """Axes that are compared: a field and its values."""
    tune: dict[str, Any] = msgspec.field(default_factory=dict)
    """Axes whose best value is chosen for each row by validation."""
    options: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Settings that accompany a value of an axis: "model.kind=rnn" = ["model.d_model=128"]."""
    seeds: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Number of seeds: the recipe's seed and the next ones."""


class Grid(Axes, frozen=True, kw_only=True):
    """A comparison, as in a grid.toml."""

    task: str
    """Task that all cells learn; `regard tasks` lists them."""
    recipe: str | None = None
    """Name or file of the recipe that the axes change. Default: the recipe of the task."""
    baseline: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values of compared axes in the row that others are compared with. Default: the first row."""
    score: str | None = None
    """Score to compare. Default: the first of the task's."""
    within: Annotated[float, Meta(ge=0, le=1e6)] = 0.05  # JSON has no inf
    """Largest distance from the best mean validation score of values in the window."""
    match: MatchedCost | None = None
    """Cost to match in all compared models by changing one size of each: parameters or state."""
    cell: CellSettings = CellSettings()
    """Execution options of each cell."""
    executor: ExecutorConfig = LocalConfig()
    """Where cells are trained: local, slurm or ray."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A field of the recipe and its values."""

    path: str
    values: tuple[str, ...]
    tuned: bool

    @property
    def option(self) -> str:
        """Command-line option of the axis."""
        return "--tune" if self.tuned else "--over"


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A combination of values for which no model can be built, and the reason."""

    values: Values
    reason: str


def distinct(refused: Sequence[Refused]) -> list[Refused]:
    """Return refused combinations without duplicates."""
    return [one for i, one in enumerate(refused) if one not in refused[:i]]


@dataclass(frozen=True)
class Combination:
    """A value of each axis, and the resulting recipe with the first seed."""

    values: Values
    recipe: Recipe
    sizes: Values = field(default_factory=dict)
    """Sizes that were changed to match a cost."""


def read_grid(path: Path, named: Any = ()) -> Grid:
    """Read a grid.toml; its code paths are trusted if the arguments `named` contain them too.

    Raises:
        UserError: the file can't be read, isn't TOML, has an unknown field or an invalid value, or
            its code isn't trusted.
    """
    values = parse_toml(read_text(path), where=str(path))
    require_trusted(values, where=str(path), named=named)
    grid = convert(values, Grid, where=str(path))
    # As they will be parsed: a name may be spread over the path of an axis and its value.
    axes = (f"{axis.path}={value}" for axis in axes_of(grid) for value in axis.values)
    assigned = [*grid.settings, *chain.from_iterable(grid.options.values()), *axes]
    require_trusted(assigned, where=str(path), named=named)
    return grid


def change_grid(
    base: Grid | None, task: str, settings: Sequence[str], given: Mapping[str, Any]
) -> Grid:
    """Return a grid with the options of the command line added to those of the file.

    Raises:
        UserError: an axis is malformed or given twice.
    """
    values = msgspec.to_builtins(base or Grid(task=task))
    values["settings"] = [*values["settings"], *settings]
    for name in ("over", "tune", "baseline"):
        table, added = axis_values(values[name]), dict[str, list[str]]()
        for text in given.get(name, ()):
            path, chosen = parse_axis(text, f"--{name}")
            if path in added:
                raise UserError(f"--{name} {path}: is given twice; join the values by commas")
            if path in table and name != "baseline":
                raise UserError(f"--{name} {path}: is an axis of the grid already; leave it out")
            added[path] = chosen
        values[name] = table | added
    for name in ("seeds", "recipe", "score", "within", "match"):
        values[name] = given.get(name, values[name])
    for name in ("threads", "device", "precision"):
        values["cell"][name] = given.get(name, values["cell"][name])
    grid = convert(values, Grid, where="compare")
    return _change_executor(grid, given.get("executor"), given.get("resource", ()))


def _change_executor(grid: Grid, kind: str | None, resources: Sequence[str]) -> Grid:
    """Return a grid with another executor or other resources."""
    if kind is not None:
        grid = override(grid, [f"executor.kind={kind}"])
    for resource in resources:
        if "=" not in resource:
            raise UserError(f"--resource {resource}: write NAME=VALUE, such as mem_gb=8")
        if isinstance(grid.executor, LocalConfig):
            raise UserError(f"--resource {resource}: is an option of --executor slurm or ray")
    return override(grid, [f"executor.{resource}" for resource in resources], where="--resource")


def parse_axis(text: str, option: str) -> tuple[str, list[str]]:
    """Return path and values of an axis such as training.lr=1e-3,3e-3.

    Commas in brackets, braces and quotes belong to a value.

    Raises:
        UserError: there is no path or no value.
    """
    path, equals, values = text.partition("=")
    if not equals or not path:
        raise UserError(f"{option} {text}: write FIELD=VALUE,VALUE, such as training.lr=1e-3,3e-3")
    return path, [value.strip() for value in _split(values)]


def _split(text: str) -> Iterator[str]:
    depth, quoted, value = 0, "", ""
    for character in text:
        if quoted:
            quoted = "" if character == quoted else quoted
        elif character in "\"'":
            quoted = character
        depth += (character in "[{") - (character in "]}")
        if character == "," and not depth and not quoted:
            yield value
            value = ""
        else:
            value += character
    yield value


def axes_of(grid: Grid) -> list[Axis]:
    """Return the axes of a grid, those that choose a kind first, as they reset other fields.

    Raises:
        UserError: an axis is empty, has a value twice, is the seed, or is compared and tuned.
    """
    over, tune = axis_values(grid.over), axis_values(grid.tune)
    if both := sorted(over.keys() & tune.keys()):
        raise UserError(f"{both[0]}: is compared and tuned; keep --over or --tune")
    axes = [
        Axis(path=path, values=tuple(map(as_text, values)), tuned=axes is tune)
        for axes in (over, tune)
        for path, values in axes.items()
    ]
    for axis in axes:
        if not axis.values or "" in axis.values:
            raise UserError(f"{axis.option} {axis.path}: has an empty value; give values after =")
        repeated = [value for value, n in Counter(axis.values).items() if n > 1]
        if repeated:
            raise UserError(f"{axis.option} {axis.path}: has {repeated[0]} twice; remove one")
        if any(name.isdecimal() for name in axis.path.split(".")):
            raise UserError(
                f"{axis.option} {axis.path}: an entry of a list can't be an axis; give whole "
                "lists, such as model.pattern=softmax,gated-deltanet*3+softmax"
            )
        if axis.path in ("seed", "task.kind"):
            raise UserError(f"{axis.option} {axis.path}: can't be an axis; see --seeds and TASK")
    return sorted(axes, key=lambda axis: not axis.path.endswith(".kind"))


def axis_values(table: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return path → values of axes; TOML reads unquoted dotted keys as nested tables."""
    return {
        path: list(value) if isinstance(value, list | tuple) else [value]
        for path, value in flatten(table).items()
    }


def as_text(value: Any) -> str:
    """Return a value as the text of an assignment."""
    return value if isinstance(value, str) else _toml(value)


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_toml(x)}" for name, x in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)  # JSON has another word for inf
    return json.dumps(value, ensure_ascii=False, default=str)


def base_recipe(grid: Grid) -> Recipe:
    """Return the recipe that the axes change.

    Raises:
        UserError: the task is unknown, or the recipe is another task's.
    """
    if grid.task not in TASKS:
        raise UserError(f"{grid.task}: no such task; {alternatives(grid.task, TASKS)}")
    recipe = find_recipe(grid.recipe or grid.task, grid.settings)
    if recipe.task is None or recipe.task.__struct_config__.tag != grid.task:
        raise UserError(f"--recipe {grid.recipe}: isn't for {grid.task}; set task.kind={grid.task}")
    return recipe


def check_size(axes: Sequence[Axis], seeds: int, confirmed: int | None) -> None:
    """Check that the number of cells is small or confirmed.

    Raises:
        UserError: there are many cells, and `confirmed` is less or None.
    """
    cells = prod(len(axis.values) for axis in axes) * seeds
    if cells > UNCONFIRMED and cells > (confirmed or 0):
        raise UserError(f"the grid has {cells} cells; to train so many, add --cells {cells}")


def expand(
    base: Recipe, axes: Sequence[Axis], options: Mapping[str, Sequence[str]]
) -> tuple[list[Combination], list[Refused]]:
    """Return all combinations of values that form a recipe, and the others with reasons.

    `options` maps an assignment to the settings that accompany it.

    Raises:
        UserError: a field is unknown, a value is invalid in all combinations, or an assignment in
            `options` is not in the grid.
    """
    assignments = [f"{axis.path}={value}" for axis in axes for value in axis.values]
    for name in options:
        if name not in assignments:
            raise UserError(f"options {name!r}: no such value; {alternatives(name, assignments)}")
    found: list[Combination] = []
    refused: list[Refused] = []
    for values in product(*(axis.values for axis in axes)):
        chosen = dict(zip((axis.path for axis in axes), values, strict=True))
        made = (f"{path}={value}" for path, value in chosen.items())
        try:
            recipe = override(base, [x for one in made for x in (one, *options.get(one, ()))])
        except UserError as error:
            refused.append(Refused(values=chosen, reason=_without_place(error)))
        else:
            found.append(Combination(chosen, recipe))
    for axis in axes:
        for value in axis.values:
            if not any(one.values[axis.path] == value for one in found):
                _require_possible(base, axis, value, options)
    return found, refused


def _require_possible(
    base: Recipe, axis: Axis, value: str, options: Mapping[str, Sequence[str]]
) -> None:
    """Raise for a value that is invalid by itself, not just with values of other axes."""
    try:
        override(base, [f"{axis.path}={value}", *options.get(f"{axis.path}={value}", ())])
    except UserError as error:
        why = _without_place(error).removeprefix(f"{axis.path}: ")
        raise UserError(f"{axis.option} {axis.path}={value}: {why}") from None


def _without_place(error: UserError) -> str:
    return str(error).removeprefix("command line: ")


def short_name(path: str) -> str:
    """Return the last part of an axis's path, or the one before `kind`: attention."""
    *_, section, name = ["", *path.split(".")]
    return section if name == "kind" and section else name


def sort_key(value: str) -> tuple[bool, float, str]:
    """Return a key that sorts numbers by size, and before other texts."""
    number = number_of(value)
    return (number is None, number or 0.0, value)


def same_value(one: str, other: str) -> bool:
    """Return whether two texts are the same value, as are 1e-3 and 0.001."""
    number = number_of(one)
    return one == other or (number is not None and number == number_of(other))


def number_of(text: str) -> float | None:
    """Return a text as a number; None if it isn't one."""
    try:
        return float(text)
    except ValueError:
        return None
