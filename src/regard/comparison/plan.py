"""Plan a comparison: check its grid before anything is written or trained."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from regard.comparison.cell import count_operations, split_refused, state_bytes
from regard.comparison.folder import Matching, Sweep, plain_values, value_at
from regard.comparison.grid import (
    Axis,
    Combination,
    Grid,
    Refused,
    as_text,
    axes_of,
    axis_values,
    base_recipe,
    check_size,
    expand,
    same_value,
)
from regard.comparison.matching import match_costs
from regard.comparison.table import require_score
from regard.config import file_name, override
from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.evaluation.tasks import score_names
from regard.runs.recipe import CosineConfig, Recipe
from regard.training.plan import plan_training
from regard.training.sources.choose import own_source


@dataclass(frozen=True)
class PlannedComparison:
    """A checked grid, and the combinations whose models can be built."""

    grid: Grid
    sweep: Sweep
    combinations: Sequence[Combination]

    @property
    def recipes(self) -> list[Recipe]:
        """Recipes of all cells: all combinations with the first seed, then with the next."""
        return [
            msgspec.structs.replace(one.recipe, seed=one.recipe.seed + number)
            for number in range(self.grid.seeds)
            for one in self.combinations
        ]


def plan_comparison(grid: Grid, *, confirmed: int | None = None) -> PlannedComparison:
    """Check the axes and values of a grid, and that the models can be built.

    Raises:
        UserError: an axis, a value or the last seed is invalid, the grid is large and its number of
            cells isn't `confirmed`, no combination can be built, the baseline isn't one of the
            rows, or the task has no such score.
    """
    axes, base = axes_of(grid), base_recipe(grid)
    check_size(axes, grid.seeds, confirmed)
    override(base, [f"seed={base.seed + grid.seeds - 1}"], where="--seeds")
    combinations, refused = expand(base, axes, grid.options)
    combinations, unsupported = split_refused(combinations)
    if not combinations:
        raise UserError(f"no combination can be trained: {unsupported[0].reason}")
    if grid.score:
        require_score(grid.score, score_names(combinations[0].recipe))
    over, tune = _tried(axes, combinations)
    baseline = _baseline(grid, over)
    first = _first_with(baseline, combinations)
    match: Matching | None = None
    unmatched: list[Refused] = []
    if grid.match:
        combinations, unmatched, match = match_costs(combinations, grid.match, first)
        over, tune = _tried(axes, combinations)
    sweep = Sweep(
        over=over,
        tune=tune,
        baseline=baseline,
        score=grid.score,
        within=grid.within,
        cell=grid.cell,
        refused=(*refused, *unsupported, *unmatched),
        match=match,
        options=tuple(
            dict.fromkeys(one.partition("=")[0] for one in chain(*grid.options.values()))
        ),
    )
    _require_distinct(combinations, tune)
    return PlannedComparison(grid, sweep, combinations)


def _tried(
    axes: Sequence[Axis], combinations: Sequence[Combination]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the values of compared and of tuned axes, written as in recipes."""
    recipes = [plain_values(one.recipe) for one in combinations]
    over, tune = (
        {
            axis.path: tuple(dict.fromkeys(value_at(one, axis.path) for one in recipes))
            for axis in axes
            if axis.tuned == tuned
        }
        for tuned in (False, True)
    )
    return over, tune


def _baseline(grid: Grid, over: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the values of the baseline, written as in recipes."""
    found = {}
    for path, values in axis_values(grid.baseline).items():
        if len(values) != 1:
            raise UserError(f"--baseline {path}: has {len(values)} values; give one")
        (value,) = values
        if path not in over:
            raise UserError(f"--baseline {path}: is not compared; choose of {', '.join(over)}")
        tried = {one: one or "none" for one in over[path]}
        text = as_text(value)
        named = file_name(text) if path.endswith("kind") and ".py:" in text else text
        same = next((one for one in tried if same_value(tried[one], named)), None)
        if same is None:
            raise UserError(
                f"--baseline {path}={value}: is not among the values that can be trained; choose "
                f"of {', '.join(tried.values())}"
            )
        found[path] = same
    return found


def _first_with(baseline: Mapping[str, str], combinations: Sequence[Combination]) -> Combination:
    """Return the first combination with the values of the baseline."""
    for one in combinations:
        recipe = plain_values(one.recipe)
        if all(value_at(recipe, path) == value for path, value in baseline.items()):
            return one
    values = " ".join(f"{path}={value or 'none'}" for path, value in baseline.items())
    raise UserError(f"--baseline {values}: can't be trained together; choose other values")


def _require_distinct(combinations: Sequence[Combination], tune: Collection[str]) -> None:
    """Raise if two combinations are the same recipe, such as with 1e-3 and 0.001."""
    seen: dict[bytes, Combination] = {}
    for one in combinations:
        other = seen.setdefault(msgspec.json.encode(one.recipe), one)
        if other is not one:
            path = next(p for p in one.values if one.values[p] != other.values[p])
            raise UserError(
                f"{'--tune' if path in tune else '--over'} {path}: {other.values[path]} and "
                f"{one.values[path]} are the same value; remove one"
            )


# Estimates


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of the cells of one combination."""

    values: dict[str, str]
    sizes: dict[str, str]
    """Sizes that were changed to match a cost."""
    cells: int
    parameters: int
    operations: int
    """Floating-point operations of the forward pass of a row."""
    state_bytes: int | None
    """Bytes of the decoding state of a full context; None if the model doesn't generate."""
    seconds: float
    """Training time of all cells, one after another."""


def estimate(planned: PlannedComparison) -> Iterator[Estimate]:
    """Yield the cost of each combination, from a few steps of each that costs something else."""
    settings = planned.grid.cell
    environment = ExecutionEnvironment.choose(settings.device, settings.precision, settings.threads)
    timed: dict[bytes, tuple[int, int, int | None, float]] = {}
    for one in planned.combinations:
        key = msgspec.json.encode(_without_rate(one.recipe))
        if key not in timed:
            timed[key] = _time(one.recipe, environment)
        parameters, operations, state, seconds = timed[key]
        yield Estimate(
            values=one.values,
            sizes=one.sizes,
            cells=planned.grid.seeds,
            parameters=parameters,
            operations=operations,
            state_bytes=state,
            seconds=seconds * planned.grid.seeds,
        )


def _without_rate(recipe: Recipe) -> Recipe:
    """Return a recipe with the usual learning rate and schedule, which don't change its cost."""
    training = msgspec.structs.replace(recipe.training, lr=1e-3, schedule=CosineConfig())
    return msgspec.structs.replace(recipe, training=training)


def _time(recipe: Recipe, environment: ExecutionEnvironment) -> tuple[int, int, int | None, float]:
    """Return parameters, operations, state bytes and seconds of a training; nothing is written."""
    plan = plan_training(own_source(recipe), recipe, "estimate")
    seconds = plan.estimate(environment)["seconds_per_step"] * plan.sampler.steps
    operations = count_operations(plan, environment)
    state = state_bytes(plan.run.model, recipe.model.context_length)
    return plan.run.n_parameters, operations, state, seconds
