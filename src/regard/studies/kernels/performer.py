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
from regard.studies.figure import Drawing, Groups, bar_chart, chart, figure, series
from regard.studies.finding import Measurement, Outside, at_least, at_most, named
from regard.studies.model_cache import trained
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.probes import ReverseConfig, as_tokens, draw_probe
from regard.training.loggers import read_metrics

HEADS = (2, 8)
DIRECTIONS = (4, 16, 64)
NEAR = 0.1
"""Largest difference in accuracy of models that count as about as accurate."""


class Model(NamedTuple):
    """Hyperparameters of a model."""

    heads: int
    directions: int | None = None
    """Random directions of FAVOR+; None with softmax attention."""


PERFORMERS = tuple(Model(heads, directions) for heads in HEADS for directions in DIRECTIONS)


class Result(NamedTuple):
    """Result of a training."""

    accuracy: Interval
    """Share of correctly predicted tokens of new rows."""
    losses: Mapping[int, float]
    """Training loss by step."""


Results: TypeAlias = Mapping[Model, Result]
Replaced: TypeAlias = Mapping[Model, float]
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
    models = (*map(Model, HEADS), *PERFORMERS)
    runs = {of: trained(recipe(of, steps, length, lr, seed)) for of in models}
    yield from evidence_from(
        {of: measured(run) for of, run in runs.items()},
        {of: accuracy_with(runs[Model(of.heads)], runs[of].recipe) for of in PERFORMERS},
    )
    softmax, favor = Model(HEADS[0]), Model(HEADS[0], DIRECTIONS[-1])
    yield _explorer_view(runs[softmax], runs[favor])


def recipe(of: Model, steps: int, length: int, lr: float, seed: int) -> Recipe:
    """Return the recipe of a model."""
    settings = [
        *(f"seed={seed}", f"model.n_heads={of.heads}"),
        *("task.vocabulary=16", f"task.length={length}"),
        *(f"training.steps={steps}", f"training.lr={lr}", "training.batch=32"),
    ]
    if of.directions is not None:
        favor = ("kind=favor-positive", f"features={of.directions}")
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


def evidence_from(results: Results, replaced: Replaced) -> EvidenceParts:
    """Yield measurements and figure."""
    exact = {heads: results[Model(heads)].accuracy.value for heads in HEADS}
    yield at_least("best accuracy of softmax", max(exact.values()), 0.9)
    below, lost = "accuracy below softmax with as many heads", list[Measurement]()
    for of in PERFORMERS:
        name = f"FAVOR+, {of.heads} heads, {of.directions} directions"
        best = exact[of.heads]
        yield at_most(f"{below}: {name}", best - results[of].accuracy.value, NEAR)
        after = f"accuracy lost by replacing softmax after training: {name}"
        lost.append(at_most(after, best - replaced[of], NEAR))
    yield Outside("the model is trained with these features and not with softmax", lost)
    yield _figure(results, replaced)


def _explorer_view(softmax: Run, favor: Run) -> dict[str, Any]:
    """Return the attention of both to a row, that of FAVOR+ by the weights that it implies."""
    config = softmax.recipe.task
    assert isinstance(config, ReverseConfig)
    ids, _ = as_tokens(draw_probe(config, softmax.recipe.seed + 1, 1), softmax.tokenizer)
    text = softmax.tokenizer.decode(ids[0].tolist())
    return look(named(softmax, "softmax"), text).beside(look(named(favor, "FAVOR+"), text)).data


def _figure(results: Results, replaced: Replaced) -> Drawing:
    curves = []
    for heads in HEADS:
        several = []
        for color, n in ((5, None), *enumerate(DIRECTIONS)):
            losses, label = results[Model(heads, n)].losses, f"{n} directions" if n else "softmax"
            several.append(series(losses.keys(), losses.values(), label, color=color))
        curves.append(chart(*several, title=f"loss, {heads} heads", x="step", y_limits=(0, None)))
    names = {of: f"{of.heads} × {of.directions}" for of in PERFORMERS}
    groups: Groups = {
        "softmax": {name: results[Model(of.heads)].accuracy.value for of, name in names.items()},
        "trained with FAVOR+": {name: results[of].accuracy for of, name in names.items()},
        "FAVOR+ replacing softmax": {name: replaced[of] for of, name in names.items()},
    }
    # The caption states bounds, so they are rounded outward.
    worst = math.floor(100 * min(results[of].accuracy.value for of in PERFORMERS)) / 100
    best = math.ceil(100 * max(replaced.values())) / 100
    accuracies = bar_chart(groups, title="accuracy", x="heads × directions", y_limits=(0, 1.4))
    return figure(*curves, accuracies, worst=worst, best=best)
