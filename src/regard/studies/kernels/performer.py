"""Performer and softmax attention, trained on the same task."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta

from regard.config import override
from regard.environment import ExecutionEnvironment
from regard.errors import NormalizerError
from regard.evaluation.tasks import score_task
from regard.explorer.look import look
from regard.metrics import Interval
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import Run
from regard.studies.figure import Drawing, Groups, Series, bar_chart, chart, figure, series
from regard.studies.finding import Outside, at_least, at_most, named
from regard.studies.model_cache import trained
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.probes import ReverseConfig, as_tokens, draw_probe
from regard.training.loggers import read_metrics

HEADS = (2, 8)
DIRECTIONS = (4, 16, 64)
NEAR = 0.1
"""Largest difference in accuracy of models that count as about as accurate."""


class Performer(NamedTuple):
    """Hyperparameters of a model with FAVOR+."""

    heads: int
    directions: int

    def __str__(self) -> str:
        return f"{self.heads} heads, {self.directions} directions"


PERFORMERS = tuple(Performer(heads, directions) for heads in HEADS for directions in DIRECTIONS)


class Result(NamedTuple):
    """Result of a training."""

    accuracy: Interval
    """Share of correctly predicted tokens of new rows."""
    losses: Mapping[int, float]
    """Training loss by step."""


Softmaxes: TypeAlias = Mapping[int, Result]
"""Results by number of heads."""
Performers: TypeAlias = Mapping[Performer, Result]
Replaced: TypeAlias = Mapping[Performer, float]
"""Accuracy of models with FAVOR+ instead of softmax after training."""


@study(trains=True)
def performer(
    steps: Annotated[int, Meta(ge=1, le=2000)] = 400,
    length: Annotated[int, Meta(ge=2, le=24)] = 16,
    lr: Annotated[float, Meta(ge=1e-5, le=0.1)] = 2e-3,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Is a Performer as accurate as a model with softmax attention?

    Nearly, after as many steps, with few or many directions, and wide or narrow heads: at four of
    five seeds (0 to 4), its accuracy is at most 0.1 below that of softmax with as many heads. At
    the other, it is 0.108 below with 2 heads and 4 directions.

    $$ e^{q \cdot k / \sqrt{d}} \approx \phi(q) \cdot \phi(k), \quad \phi(x) = \frac{1}{\sqrt{m}} \,
    e^{w \cdot x' - \lVert x' \rVert^2 / 2}, \quad x' = \frac{x}{d^{1/4}} $$

    Decoders of two layers learn to reverse a row of tokens. Each model with FAVOR+ is compared with
    softmax of as many heads after as many steps. Then FAVOR+ replaces softmax in models trained
    with softmax, with the same weights.

    Figure. Left and middle: loss over training, for 2 and for 8 heads. Right: accuracy on new rows.
    Trained with FAVOR+: at least {worst:.2f}. Trained with softmax, with FAVOR+ replacing it
    afterwards: at most {best:.2f}. Thin lines: 95% intervals.

    Args:
        steps: training steps
        length: number of tokens to reverse
        lr: highest learning rate
        seed: seed of weights, features and rows
    """
    softmax = {heads: trained(recipe(steps, length, lr, seed, heads)) for heads in HEADS}
    performers = {
        of: trained(recipe(steps, length, lr, seed, of.heads, directions=of.directions))
        for of in PERFORMERS
    }
    yield from evidence_from(
        {heads: measured(run) for heads, run in softmax.items()},
        {of: measured(run) for of, run in performers.items()},
        {of: accuracy_with(softmax[of.heads], run.recipe) for of, run in performers.items()},
    )
    most = Performer(HEADS[0], DIRECTIONS[-1])
    yield _explorer_view(softmax[most.heads], performers[most])


def recipe(
    steps: int, length: int, lr: float, seed: int, heads: int, directions: int | None = None
) -> Recipe:
    """Return the recipe of a model with softmax attention, or with FAVOR+ if `directions`."""
    settings = [
        *(f"seed={seed}", f"model.n_heads={heads}"),
        *("task.vocabulary=16", f"task.length={length}"),
        *(f"training.steps={steps}", f"training.lr={lr}", "training.batch=32"),
    ]
    if directions is not None:
        favor = ("kind=favor-positive", f"features={directions}")
        settings += [f"model.attention.{setting}" for setting in favor]
    return override(RECIPES["reverse"], settings)


def measured(run: Run) -> Result:
    """Return a run's accuracy on new rows and its losses."""
    records = read_metrics(run.path / "metrics.jsonl")
    return Result(accuracy(run), {record["step"]: record["loss"] for record in records})


def accuracy(run: Run) -> Interval:
    """Return the share of correctly predicted tokens of new rows."""
    return score_task(run, ExecutionEnvironment.choose("auto", "float32")).scores["accuracy"]


def accuracy_with(run: Run, other: Recipe) -> float:
    """Return a model's accuracy with the attention of another recipe; 0 if normalizers fail."""
    replaced = Run.new(run.path, other, run.tokenizer, run.origin)
    # All weights fit; the directions, which the run doesn't have, are those of the recipe.
    replaced.model.load_state_dict(run.model.state_dict(), strict=False)
    replaced.model.eval()
    try:
        return accuracy(replaced).value
    except NormalizerError:
        return 0.0


def evidence_from(softmax: Softmaxes, performers: Performers, replaced: Replaced) -> EvidenceParts:
    """Yield measurements and figure."""
    exact = {heads: result.accuracy.value for heads, result in softmax.items()}
    yield at_least("best accuracy of softmax", max(exact.values()), 0.9)
    for of, result in performers.items():
        below = exact[of.heads] - result.accuracy.value
        yield at_most(f"accuracy below softmax with as many heads: FAVOR+, {of}", below, NEAR)
    name = "accuracy lost by replacing softmax after training: FAVOR+"
    lost = [at_most(f"{name}, {of}", exact[of.heads] - x, NEAR) for of, x in replaced.items()]
    yield Outside("the model is trained with these features and not with softmax", lost)
    yield _figure(softmax, performers, replaced)


def _explorer_view(softmax: Run, favor: Run) -> dict[str, Any]:
    """Return the attention of both to a row, that of FAVOR+ by the weights that it implies."""
    config = softmax.recipe.task
    assert isinstance(config, ReverseConfig)
    ids, _ = as_tokens(draw_probe(config, softmax.recipe.seed + 1, 1), softmax.tokenizer)
    text = softmax.tokenizer.decode(ids[0].tolist())
    return look(named(softmax, "softmax"), text).beside(look(named(favor, "FAVOR+"), text)).data


def _figure(softmax: Softmaxes, performers: Performers, replaced: Replaced) -> Drawing:
    def losses(result: Result, label: str, color: int) -> Series:
        return series(result.losses.keys(), result.losses.values(), label, color=color)

    curves = []
    for heads in HEADS:
        several = [losses(softmax[heads], "softmax", 5)]
        for i, n in enumerate(DIRECTIONS):
            several.append(losses(performers[Performer(heads, n)], f"{n} directions", i))
        curves.append(chart(*several, title=f"loss, {heads} heads", x="step", y_limits=(0, None)))
    names = {of: f"{of.heads} × {of.directions}" for of in PERFORMERS}
    groups: Groups = {
        "softmax": {name: softmax[of.heads].accuracy.value for of, name in names.items()},
        "trained with FAVOR+": {name: performers[of].accuracy for of, name in names.items()},
        "FAVOR+ replacing softmax": {name: replaced[of] for of, name in names.items()},
    }
    # The caption states bounds, so they are rounded outward.
    worst = math.floor(100 * min(performers[of].accuracy.value for of in PERFORMERS)) / 100
    best = math.ceil(100 * max(replaced.values())) / 100
    accuracies = bar_chart(groups, title="accuracy", x="heads × directions", y_limits=(0, 1.4))
    return figure(*curves, accuracies, worst=worst, best=best)
