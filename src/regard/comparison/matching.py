"""Match parameters or state bytes of all compared models by changing one size of each."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from regard.comparison.cell import state_bytes
from regard.comparison.folder import Matching
from regard.comparison.grid import Combination, MatchedCost, Refused, distinct
from regard.config import flatten, override
from regard.errors import UserError
from regard.models.builders import make_model
from regard.models.uninitialized import make_uninitialized
from regard.runs.recipe import Recipe
from regard.tasks.probes import ProbeConfig, number_tokenizer

TOLERANCE = 0.02
"""Largest relative difference between costs that count as equal."""
LARGEST = 2**16
"""Largest size to try."""
SIZES: Mapping[MatchedCost, str] = {
    "parameters": "model.d_ff",
    "state": "model.attention.features",
}
"""The field to change for each cost."""
_NAMES: Mapping[MatchedCost, str] = {"parameters": "parameters", "state": "state bytes"}


def match_costs(
    combinations: Sequence[Combination], by: MatchedCost, baseline: Combination
) -> tuple[list[Combination], list[Refused], Matching]:
    """Return combinations matched to the baseline's cost, those that can't be, and the cost.

    Raises:
        UserError: the baseline has no such cost, or the size to change is an axis.
    """
    if any(SIZES[by] in one.values for one in combinations):
        raise UserError(f"--match {by}: sets {SIZES[by]}, which is an axis too; leave one out")
    target = _cost(by, baseline.recipe)
    if target is None:
        raise UserError(f"--match {by}: the baseline has none; compare models that generate")
    found: dict[bytes, dict[str, str] | str] = {}
    matched, refused = [], []
    for one in combinations:
        key = msgspec.json.encode([one.recipe.model, one.recipe.task])
        if key not in found:
            found[key] = _sizes(one.recipe, by, target)
        sizes = found[key]
        if isinstance(sizes, str):
            refused.append(Refused(values=_of_model(one.values), reason=sizes))
        else:
            recipe = override(one.recipe, [f"{path}={size}" for path, size in sizes.items()])
            matched.append(replace(one, recipe=recipe, sizes=sizes))
    paths = tuple(dict.fromkeys(path for one in matched for path in one.sizes))
    return matched, distinct(refused), Matching(by=by, target=target, sizes=paths)


def _sizes(recipe: Recipe, by: MatchedCost, target: int) -> dict[str, str] | str:
    """Return the size that matches the cost (empty if it already matches), or why none does."""
    cost = _cost(by, recipe)
    if cost is None:
        return f"has no {_NAMES[by]} to match"
    if _is_close(cost, target):
        return {}
    path = SIZES[by]
    if path not in flatten(msgspec.to_builtins(recipe)):
        return f"has {cost:,} {_NAMES[by]}, not {target:,}, and no {path} to change"

    def cost_of(size: int) -> int:
        return _cost(by, override(recipe, [f"{path}={size}"])) or 0

    size = _closest(cost_of, target)
    if not _is_close(nearest := cost_of(size), target):
        return f"can't have {target:,} {_NAMES[by]}: the nearest is {nearest:,}, by {path}={size}"
    return {path: str(size)}


def _closest(cost_of: Callable[[int], int], target: int) -> int:
    """Return the size whose cost is closest to the target, by bisection: cost grows with size."""
    high = 1
    while cost_of(high) < target and high < LARGEST:
        high *= 2
    low = bisect_left(range(high), target, lo=max(high // 2, 1), key=cost_of)
    return min((size for size in (low - 1, low) if size), key=lambda x: abs(cost_of(x) - target))


def _is_close(cost: int, target: int) -> bool:
    return abs(cost - target) <= TOLERANCE * target


def _cost(by: MatchedCost, recipe: Recipe) -> int | None:
    """Return the parameters, or the state bytes of a full context, of a model without training."""
    if not isinstance(recipe.task, ProbeConfig):
        raise UserError(f"--match {by}: requires a task of token ids, whose vocabulary is known")
    vocabulary = recipe.vocabulary_size(number_tokenizer(recipe.task.vocabulary))
    if by == "parameters":
        model = make_uninitialized(recipe.model, recipe.head, vocabulary)
        return sum(parameter.numel() for parameter in model.parameters())
    model = make_model(recipe.model, recipe.head, vocabulary)
    return state_bytes(model, recipe.model.context_length)


def _of_model(values: Mapping[str, str]) -> dict[str, str]:
    return {path: value for path, value in values.items() if path.startswith(("model.", "task."))}
