"""What the tables of trained models share: options, stored figures, and training of a recipe."""

import argparse
import json
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.files import write_file
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_training
from regard.training.sources.choose import own_source


def options(doc: str | None, rows: Collection[str]) -> argparse.ArgumentParser:
    """The rows to train, by default all, and the folder of the figures."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=rows)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    return parser


def stored(place: Path) -> dict[str, Any]:
    """The figures of earlier calls, by row; makes the folder."""
    place.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = json.loads(place.read_bytes()) if place.exists() else {}
    return found


def store(place: Path, found: Mapping[str, Any], rows: Iterable[str]) -> None:
    """Write figures in the order of the rows."""
    ordered = {name: found[name] for name in rows if name in found}
    write_file(place, (json.dumps(ordered, indent=1) + "\n").encode())


@contextmanager
def trained(
    task: str, settings: Sequence[str], environment: ExecutionEnvironment
) -> Iterator[tuple[Run, float]]:
    """A run of a task's recipe with some settings, and the seconds that its training took."""
    recipe: Recipe = override(RECIPES[task], settings)
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_training(own_source(recipe), recipe, Path(folder) / "run")
        started = time.perf_counter()
        plan.execute(ExecutionOptions(environment=environment, quiet=True))
        yield plan.run, time.perf_counter() - started
