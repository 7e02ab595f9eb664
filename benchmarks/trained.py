"""A recipe, trained in a folder that is thrown away: what the tables of trained models share."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_training
from regard.training.sources.choose import own_source


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
