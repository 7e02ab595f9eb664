"""The Performer beside softmax attention, trained on the same task."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from regard.config import override
from regard.errors import NormalizerError
from regard.evaluation.tasks import score_task
from regard.explorer.look import look
from regard.metrics import Interval
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES
from regard.runs.run import ExecutionEnvironment, Run
from regard.studies.figure import Drawing, bars, chart, figure, series
from regard.studies.finding import EvidenceParts, Outside, at_least, at_most, named, table
from regard.studies.model_cache import trained
from regard.studies.study import Seed, study
from regard.tasks.probes import ReverseConfig, as_tokens, draw_probe
from regard.training.loggers import read_metrics

HEADS = (2, 8)
DIRECTIONS = (4, 16, 64)
NEAR = 0.1
"""Largest difference of accuracy between models that count as about as accurate."""


class Performer(NamedTuple):
    """Hyperparameters of a model with FAVOR+."""

    heads: int
    directions: int

    def __str__(self) -> str:
        return f"{self.heads} heads, {self.directions} directions"


PERFORMERS = tuple(Performer(heads, directions) for heads in HEADS for directions in DIRECTIONS)


class Result(NamedTuple):
    """How a model does after training."""

    accuracy: Interval
    """Share of the tokens of new rows that it predicts."""
    losses: Mapping[int, float]
    """Training loss by step."""


class Results(NamedTuple):
    """Of all models."""

    softmax: Mapping[int, Result]
    """By number of heads."""
    performers: Mapping[Performer, Result]
    exchanged: Mapping[Performer, float]
    """Accuracy of the softmax model, with FAVOR+ put in its place after training."""


@study(trains=True)
def performer(
    steps: Annotated[int, Meta(ge=1, le=2000)] = 400,
    length: Annotated[int, Meta(ge=2, le=24)] = 16,
    lr: Annotated[float, Meta(ge=1e-5, le=0.1)] = 2e-3,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Is a Performer as accurate as a model with softmax attention?

    It is about as accurate after as many steps, with few or many directions, wide or narrow heads:
    its accuracy is at most 10% below that of softmax with as many heads.

    $$ e^{q \cdot k / \sqrt{d}} \approx \phi(q) \cdot \phi(k), \quad \phi(x) = \frac{1}{\sqrt{m}} \,
    e^{w \cdot x' - \lVert x' \rVert^2 / 2}, \quad x' = \frac{x}{d^{1/4}} $$

    Decoders of two layers learn to write a row of tokens in reverse, for which each position has
    to look at exactly one other. Those with FAVOR+ never see softmax: they learn queries and keys
    that serve with the directions that they happened to be drawn with, and a few directions
    will do. With eight narrow heads, softmax itself takes more steps to learn the task, so each
    model is compared with softmax of as many heads after as many steps.

    That is not because the features approximate softmax attention. The queries and keys that
    softmax learns have about unit variance or more, and for such no common number of directions is
    enough: put FAVOR+ in the place of softmax after training, with the very same weights, and most
    predictions are wrong.

    Figure. Left and middle: loss over training, for 2 and for 8 heads. Right: accuracy on new rows:
    trained with FAVOR+ at least {worst:.2f}; models trained with softmax, with FAVOR+ in its place
    afterwards, at most {best:.2f}. Thin lines: 95% intervals.

    Args:
        steps: of training
        length: tokens to be reversed
        lr: highest learning rate
        seed: of weights, features and rows
    """
    softmax = {heads: trained(recipe(steps, length, lr, seed, heads)) for heads in HEADS}
    performers = {
        of: trained(recipe(steps, length, lr, seed, of.heads, directions=of.directions))
        for of in PERFORMERS
    }
    results = Results(
        {heads: measured(run) for heads, run in softmax.items()},
        {of: measured(run) for of, run in performers.items()},
        {of: accuracy_with(softmax[of.heads], run.recipe) for of, run in performers.items()},
    )
    most = Performer(HEADS[0], DIRECTIONS[-1])
    yield from judged(results)
    yield _explorer_view(softmax[most.heads], performers[most])


def recipe(
    steps: int, length: int, lr: float, seed: int, heads: int, directions: int | None = None
) -> Recipe:
    """A model for the task, with softmax attention or with so many directions."""
    favor = ("kind=favor-positive", f"features={directions}") if directions is not None else ()
    settings = [
        f"seed={seed}",
        *("task.vocabulary=16", f"task.length={length}"),
        *(f"training.steps={steps}", f"training.lr={lr}", "training.batch=32"),
        f"model.n_heads={heads}",
        *(f"model.attention.{setting}" for setting in favor),
    ]
    return override(RECIPES["reverse"], settings)


def measured(run: Run) -> Result:
    """A run's accuracy on new rows, and how it came there."""
    records = read_metrics(run.path / "metrics.jsonl")
    return Result(accuracy(run), {record["step"]: record["loss"] for record in records})


def accuracy(run: Run) -> Interval:
    """Share of the tokens of new rows that the model predicts."""
    scores = score_task(run, ExecutionEnvironment.choose("auto", "float32")).scores
    return scores["accuracy"]


def accuracy_with(run: Run, other: Recipe) -> float:
    """What is left of a model's accuracy with the attention of another recipe: 0 if none works."""
    exchanged = Run.new(run.path, other, run.tokenizer, run.origin)
    # All weights fit; the directions, which the run doesn't have, stay as they are drawn.
    exchanged.model.load_state_dict(run.model.state_dict(), strict=False)
    exchanged.model.eval()
    try:
        return accuracy(exchanged).value
    except NormalizerError:
        return 0.0


def judged(results: Results) -> EvidenceParts:
    """Yield what the accuracies say."""
    own = {heads: result.accuracy.value for heads, result in results.softmax.items()}
    yield at_least("accuracy of softmax at its best", max(own.values()), 0.9)
    for of, result in results.performers.items():
        below = own[of.heads] - result.accuracy.value
        yield at_most(f"below softmax with as many heads: FAVOR+, {of}", below, NEAR)
    lost = [
        at_most(f"lost where softmax is exchanged for it, {of}", own[of.heads] - left, NEAR)
        for of, left in results.exchanged.items()
    ]
    yield Outside(
        "the model is trained with these features; put in place of softmax after training, they "
        "fail",
        lost,
    )
    softmax = [(f"softmax, {n} heads", of.accuracy, "") for n, of in results.softmax.items()]
    features = [
        (f"FAVOR+, {of}", result.accuracy, results.exchanged[of])
        for of, result in results.performers.items()
    ]
    yield table(["attention", "accuracy", "put in place of softmax"], [*softmax, *features])
    yield _figure(results)


def _explorer_view(softmax: Run, favor: Run) -> dict[str, Any]:
    """What both look at in a row, by the weights of one and the weights that the other implies."""
    config = softmax.recipe.task
    assert isinstance(config, ReverseConfig)
    ids, _ = as_tokens(draw_probe(config, softmax.recipe.seed + 1, 1), softmax.tokenizer)
    text = softmax.tokenizer.decode(ids[0].tolist())
    return look(named(softmax, "softmax"), text).beside(look(named(favor, "FAVOR+"), text)).data


def _figure(results: Results) -> Drawing:
    curves = []
    for heads in HEADS:
        by_step = results.softmax[heads].losses
        losses = [series(by_step.keys(), by_step.values(), "softmax", color=5)]
        for i, n in enumerate(DIRECTIONS):
            by_step = results.performers[Performer(heads, n)].losses
            losses.append(series(by_step.keys(), by_step.values(), f"{n} directions", color=i))
        title = f"loss, {heads} heads"
        curves.append(chart(*losses, title=title, x="step", y_limits=(0, None)))
    own = [results.performers[of].accuracy for of in PERFORMERS]
    accuracies = chart(
        bars([results.softmax[of.heads].accuracy.value for of in PERFORMERS], "softmax"),
        bars(own, "trained with FAVOR+"),
        bars([results.exchanged[of] for of in PERFORMERS], "FAVOR+ in place of softmax"),
        names=[f"{of.heads} × {of.directions}" for of in PERFORMERS],
        title="accuracy",
        x="heads × directions",
        y_limits=(0, 1.4),
    )
    return figure(
        *curves,
        accuracies,
        worst=min(one.value for one in own),
        best=max(results.exchanged.values()),
    )
