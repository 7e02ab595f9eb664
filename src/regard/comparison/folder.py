"""The folder of a comparison: its axes, and a run folder for each cell.

sweep.json             axes, baseline, score, and the combinations that were refused
cells/FINGERPRINT/     a run folder, with these additional files:
  cell.json            threads, device and precision
  claim                number of the newest attempt, the only one that may write
  outcome.json         scores and costs, or the reason of a failure
"""

import json
import shutil
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from regard.comparison.grid import CellSettings, MatchedCost, Refused, Values, as_text
from regard.config import flatten, parse_toml, to_toml
from regard.errors import UserError
from regard.files import decode_json, fingerprint_of, hold_lock, read_table, read_text, write_file
from regard.models.head_config import with_labels
from regard.models.pattern import concise, to_text
from regard.runs.claim import Claim
from regard.runs.code import code_hashes, copy_code
from regard.runs.recipe import Recipe, load_recipe, recipe_to_toml, require_run

State = Literal["finished", "diverged", "failed"]

T = TypeVar("T")


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """The cost to which all models are matched."""

    by: MatchedCost
    target: int
    """Parameters, or bytes of the decoding state."""
    sizes: tuple[str, ...]
    """Fields of the recipe that were changed to match it."""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """Axes and settings of a comparison."""

    over: dict[str, tuple[str, ...]]
    """Compared axes: path → values, in the order of the table."""
    tune: dict[str, tuple[str, ...]]
    """Tuned axes."""
    baseline: Values = msgspec.field(default_factory=dict)
    score: str | None = None
    within: float = 0.05
    cell: CellSettings = CellSettings()
    refused: tuple[Refused, ...] = ()
    match: Matching | None = None
    options: tuple[str, ...] = ()
    """Fields of the recipe that `Grid.options` set together with a value."""

    @property
    def sizes(self) -> tuple[str, ...]:
        """Fields that were changed to match a cost."""
        return self.match.sizes if self.match else ()

    @property
    def axes(self) -> list[str]:
        """Paths of all axes."""
        return [*self.over, *self.tune]


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of a cell, measured while it trains."""

    parameters: int
    operations: int
    """Floating-point operations of the forward pass of one row of the first batch."""
    state_bytes: int | None
    """Bytes of the decoding state of a full context; None if the model doesn't generate."""
    seconds: float
    """Duration of all training steps."""
    tokens_per_second: float
    """Positions trained on per second, padding included."""
    peak_memory_mb: float | None
    """Peak memory of the process on a CPU (None on Windows), of the device's tensors on a GPU."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a cell: finished, diverged or failed."""

    state: State
    attempt: int
    """Number of the attempt that wrote this."""
    step: int = 0
    """Number of training steps done, or the step that failed."""
    reason: str = ""
    validation: dict[str, float] = msgspec.field(default_factory=dict)
    """Validation scores, for the choice of tuned values."""
    test: dict[str, float] = msgspec.field(default_factory=dict)
    """Scores on the task's test examples."""
    costs: Costs | None = None


@dataclass(frozen=True)
class Cell:
    """A cell on disk."""

    path: Path
    recipe: dict[str, Any]
    """Plain values of config.toml."""
    outcome: Outcome | None
    code: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each file of custom code."""
    settings: CellSettings | None = None
    """Execution options; None for a run that isn't in the comparison."""

    def value(self, axis: str) -> str:
        """Return the value of an axis as text; empty if the recipe has no such field."""
        return value_at(self.recipe, axis)

    @property
    def seed(self) -> int:
        """Seed of the recipe."""
        return int(self.recipe["seed"])

    @property
    def has_ended(self) -> bool:
        """Whether the cell finished or diverged; a failed one is tried again."""
        return self.outcome is not None and self.outcome.state != "failed"


def value_at(recipe: Mapping[str, Any], axis: str) -> str:
    """Return the value of an axis in a recipe as text; empty if there is no such field."""
    found: Any = recipe
    for name in axis.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    if found is None:
        return ""
    if axis.endswith(".pattern"):
        return to_text(found) or as_text(concise(found))
    return as_text(found)


# The folder


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock the folder: a second scheduler is refused, and a killed one releases the lock.

    Raises:
        UserError: the folder holds something else, or another command is running on it.
    """
    require_comparison(out)
    out.mkdir(parents=True, exist_ok=True)
    busy = (
        f"{out}: another regard compare is running on it; wait until it ends, or choose another "
        "--out"
    )
    with hold_lock(out / ".lock", busy):
        for unfinished in (out / "cells").glob(".*.partial"):  # of a killed command
            _remove(unfinished)
        yield


def require_comparison(out: Path) -> None:
    """Raise unless a folder is new, blank, or a comparison.

    Raises:
        UserError: it holds something else.
    """
    is_blank = out.is_dir() and all(
        path.name == ".lock" or path.name.endswith(".partial") for path in out.iterdir()
    )
    if out.exists() and not (is_sweep(out) or is_blank):
        raise UserError(f"{out}: exists but is not a comparison; choose another --out")


def is_sweep(out: Path) -> bool:
    """Whether a folder holds a comparison."""
    return (out / "sweep.json").is_file()


def load_sweep(out: Path) -> Sweep:
    """Read the axes and settings of a comparison from its folder.

    Raises:
        UserError: it isn't the folder of a comparison, or is damaged.
    """
    if not is_sweep(out):
        raise UserError(f"{out}: is not a comparison: it has no sweep.json; start one with --over")
    try:
        return decode_json((out / "sweep.json").read_bytes(), Sweep)
    except ValueError as error:
        raise UserError(f"{out}/sweep.json: is damaged ({error}); repeat its command") from None


def join_sweep(out: Path, sweep: Sweep) -> Sweep:
    """Return a comparison whose axes also have the values that the folder already compares.

    Raises:
        UserError: an axis is compared in one and tuned in the other, or they match different costs.
    """
    if not is_sweep(out):
        return sweep
    before = load_sweep(out)
    over, tune = _merged(before.over, sweep.over), _merged(before.tune, sweep.tune)
    if both := sorted(over.keys() & tune.keys()):
        raise UserError(f"{both[0]}: is compared and tuned in one folder; choose another --out")
    if _matched(before) != _matched(sweep):
        raise UserError(
            f"{out}: holds models matched to {_matched(before)}, not to {_matched(sweep)}; choose "
            "another --out"
        )
    sizes = tuple(dict.fromkeys((*before.sizes, *sweep.sizes)))
    match = sweep.match and msgspec.structs.replace(sweep.match, sizes=sizes)
    # A former refusal holds unless its values are among those that can be trained now.
    tried = {**sweep.over, **sweep.tune}
    former = (
        one
        for one in before.refused
        if one not in sweep.refused
        and any(value not in tried.get(path, ()) for path, value in one.values.items())
    )
    refused = (*sweep.refused, *former)
    options = tuple(dict.fromkeys((*before.options, *sweep.options)))
    return msgspec.structs.replace(
        sweep, over=over, tune=tune, refused=refused, match=match, options=options
    )


def _matched(sweep: Sweep) -> str:
    return f"{sweep.match.target:,} ({sweep.match.by})" if sweep.match else "nothing"


def save_sweep(out: Path, sweep: Sweep) -> None:
    """Write the axes and settings of a comparison into its folder."""
    write_file(out / "sweep.json", msgspec.json.format(msgspec.json.encode(sweep), indent=1))


def _merged(
    before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    return {
        path: tuple(dict.fromkeys((*before.get(path, ()), *now.get(path, ()))))
        for path in dict.fromkeys((*before, *now))
    }


# Cells


def plain_values(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain values, as read from its TOML file."""
    return tomllib.loads(to_toml(recipe))


def create_cell(out: Path, recipe: Recipe, settings: CellSettings) -> Path:
    """Write the folder of a cell that is to be trained; keep an existing one."""
    path = cell_path(out, recipe, settings)
    if not (path / "config.toml").exists():
        path.mkdir(parents=True, exist_ok=True)
        if hashes := code_hashes(recipe):
            copy_code(recipe, path)
            write_file(path / "origin.json", json.dumps({"code": hashes}).encode())
        write_file(path / "cell.json", msgspec.json.encode(settings))
        write_file(path / "config.toml", recipe_to_toml(recipe).encode())  # last: now it is a cell
    return path


def cell_path(out: Path, recipe: Recipe, settings: CellSettings) -> Path:
    """Return the folder of a cell: its name is a hash of everything that its weights depend on."""
    unlabeled = msgspec.structs.replace(recipe, head=with_labels(recipe.head, ()))
    parts = [to_toml(unlabeled), code_hashes(recipe), msgspec.to_builtins(settings)]
    return out / "cells" / fingerprint_of(json.dumps(parts, sort_keys=True).encode())


def remove_cell(path: Path) -> None:
    """Delete the folder of a cell; a kill leaves the whole cell or none."""
    removed = path.with_name(f".{path.name}.partial")
    path.rename(removed)
    shutil.rmtree(removed)


def add_run(out: Path, run: Path, settings: CellSettings) -> Path:
    """Copy a separately trained run into the folder, as a cell.

    Raises:
        UserError: it isn't a run, or wasn't trained for a task.
    """
    recipe = load_recipe(require_run(run))
    if recipe.task is None:
        raise UserError(f"--add {run}: was not trained for a task, so it can't be scored")
    target = cell_path(out, recipe, settings)
    if not (target / "config.toml").exists():
        shutil.rmtree(target, ignore_errors=True)  # what a kill or a late job has left
        partial = target.with_name(f".{target.name}.partial")  # `locked` removes older ones
        _copy(run, partial)
        write_file(partial / "cell.json", msgspec.json.encode(settings))
        partial.rename(target)
    return target


def _copy(run: Path, target: Path) -> None:
    try:
        left_out = shutil.ignore_patterns("tensorboard", "outcome.json", ".*.partial")
        shutil.copytree(run, target, ignore=left_out)
    except shutil.Error as error:  # of all files
        _remove(target)
        file, _, reason = error.args[0][0]
        raise UserError(
            f"--add {run}: {file} can't be copied ({reason}); if it is being trained, wait "
            "until it ends"
        ) from None
    _make_writable(target)


def _make_writable(copied: Path) -> None:
    """Let files and folders be written and removed: the run may be read-only."""
    for path in (copied, *copied.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)


def _remove(unfinished: Path) -> None:
    with suppress(OSError):  # a file that another process removes
        _make_writable(unfinished)
    shutil.rmtree(unfinished, ignore_errors=True)


def read_cells(out: Path) -> list[Cell]:
    """Return all cells of a folder, in order of their names."""
    return [
        read_cell(config.parent)
        for config in sorted((out / "cells").glob("*/config.toml"))
        if not config.parent.name.startswith(".")
    ]


def read_cell(path: Path) -> Cell:
    """Read a cell, or another run.

    Raises:
        UserError: it isn't a run folder, or is damaged.
    """
    config = require_run(path) / "config.toml"
    values = parse_toml(read_text(config), where=str(config))
    if not isinstance(values.get("seed"), int):
        raise UserError(f"{config}: has no seed; restore it from a copy")
    origin = path / "origin.json"
    code = read_table(origin).get("code", {}) if origin.is_file() else {}
    settings = _read(path / "cell.json", CellSettings, "restore it from a copy")
    return Cell(path, values, read_outcome(path), code, settings)


def read_outcome(path: Path) -> Outcome | None:
    """Read a cell's outcome; None if it hasn't ended.

    Raises:
        UserError: the file is damaged.
    """
    return _read(path / "outcome.json", Outcome, "delete it to train the cell again")


def _read(file: Path, type_: type[T], remedy: str) -> T | None:
    try:
        return decode_json(file.read_bytes(), type_)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{file}: is damaged ({error}); {remedy}") from None


def require_equal(cells: Sequence[Cell], planned: Sequence[Cell], sweep: Sweep) -> None:
    """Check that cells differ only in the axes, the options of their values, and the seed.

    Raises:
        UserError: they differ in other fields, in the version of a file of code, or in an execution
            option, which the message names.
    """
    _require_equal_code([*planned, *cells])
    _require_equal_settings([*planned, *cells])
    _require_equal_but([*planned[:1], *cells], [*sweep.axes, *sweep.sizes, *sweep.options])
    rows: dict[tuple[str, ...], list[Cell]] = {}
    for cell in (*planned, *cells):
        rows.setdefault(tuple(map(cell.value, sweep.axes)), []).append(cell)
    for row in rows.values():
        _require_equal_but(row, ())  # of equal values, options and sizes must be equal too


def _require_equal_but(cells: Sequence[Cell], axes: Sequence[str]) -> None:
    first: dict[str, Any] | None = None
    for cell in cells:
        values = flatten(cell.recipe)
        fields = {path: value for path, value in values.items() if not _is_free(path, axes)}
        first = fields if first is None else first
        if differing := sorted(
            path for path in first.keys() | fields.keys() if first.get(path) != fields.get(path)
        ):
            raise UserError(
                f"{cell.path.parent}: its runs differ in {', '.join(differing)}; add --over "
                f"{differing[0]}=…, or choose another --out"
            )


def _require_equal_code(cells: Sequence[Cell]) -> None:
    hashes: dict[str, str] = {}
    for cell in cells:
        for name, digest in cell.code.items():
            if hashes.setdefault(name, digest) != digest:
                raise UserError(
                    f"{cell.path.parent}: its runs have two versions of {name}; choose another "
                    "--out, or rename one of the files"
                )


def _require_equal_settings(cells: Sequence[Cell]) -> None:
    known = [(cell, msgspec.structs.asdict(cell.settings)) for cell in cells if cell.settings]
    for cell, options in known:
        for name, value in options.items():
            if value != (other := known[0][1][name]):
                raise UserError(
                    f"{cell.path.parent}: its runs differ in --{name} ({value}, {other}); choose "
                    "another --out"
                )


def _is_free(path: str, axes: Sequence[str]) -> bool:
    """Return whether a field may differ: an axis, or an option of the kind that an axis chooses."""
    below = (axis.removesuffix(".kind") + "." for axis in axes)
    return path in ("format", "seed", "head.labels", *axes) or path.startswith(tuple(below))


def publish(claim: Claim, outcome: Outcome) -> None:
    """Write a cell's outcome.

    Raises:
        StaleClaimError: a newer attempt has claimed the cell.
    """
    with claim.publishing():
        write_file(claim.folder / "outcome.json", msgspec.json.encode(outcome))


def give_up(cell: Path, reason: str) -> None:
    """Record the failure of a cell whose process died; a finished cell stays finished."""
    claim = Claim.take(cell)
    if (outcome := read_outcome(cell)) and outcome.state != "failed":
        return
    publish(claim, Outcome(state="failed", attempt=claim.number, reason=reason))
