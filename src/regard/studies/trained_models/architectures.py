"""Scores of architectures on tasks."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from regard.environment import ExecutionEnvironment
from regard.errors import UserError
from regard.evaluation.tasks import score_task
from regard.metrics import Z95, Interval
from regard.runs.recipes import RECIPES
from regard.studies.figure import Line, bar_chart, figure
from regard.studies.finding import Measurement, Measurements, Outside, at_least, equal, refused
from regard.studies.model_cache import trained
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.task_models import (
    DECODER,
    ENCODER,
    PAIR,
    Steps,
    Width,
    recipe_for,
)
from regard.tasks.split import Scores as TaskScores
from regard.training.plan import plan_training
from regard.training.sources.choose import own_source

FAMILIES = {
    "summaries": (PAIR, DECODER),
    "classification": (ENCODER, DECODER, PAIR),
    "retrieval": (ENCODER, DECODER),
    "translation": (PAIR, DECODER),
}
"""Families that can be trained for each task; the course recommends the first."""
RECOMMENDED = {task: families[0] for task, families in FAMILIES.items()}
SCORES = {
    "summaries": "ROUGE-L",
    "classification": "accuracy",
    "retrieval": "MRR",
    "translation": "chrF",
}
"""Score by which families are compared, by task."""
GENERATION = ("summaries", "translation")

Scores = Mapping[str, Mapping[str, Interval]]
"""By task, and by family or by baseline."""


@study(trains=True)
def architectures(steps: Steps = 300, width: Width = 64, seed: Seed = 0) -> EvidenceParts:
    r"""Which architecture for which task: summarize, classify, retrieve, translate?

    Encoder–decoders to generate a text from another, encoders to classify or retrieve. Of these two
    families, the other one can't perform the task or, with four of five seeds, isn't better.

    $$ \text{encoder}: x \mapsto h_{1..n},\quad \text{decoder}: P(y_t \mid y_{<t}),\quad
    \text{both}: P(y_t \mid y_{<t}, x) $$

    Each family is trained for each task that it supports, with the same number of steps, and tested
    on 200 new questions. A decoder classifies by its last state, and an encoder–decoder by
    generating the label. With one seed of five the encoder–decoder classifies better, by 0.15.
    Models, data and number of steps are small: the scores show what is learned first (docs/tasks.md
    has longer trainings).

    Figure. Score of each family on each task that it supports, with 95 % intervals. Dotted: the
    best baseline without a trained model.
    """
    environment = ExecutionEnvironment.choose("cpu")
    found = {
        task: {
            family: score_task(trained(recipe_for(task, family, steps, width, seed)), environment)
            for family in families
        }
        for task, families in FAMILIES.items()
    }
    scores = {
        task: {family: _share(one.scores, task) for family, one in by_family.items()}
        for task, by_family in found.items()
    }
    baselines = {
        task: max(_share(one, task).value for one in by[RECOMMENDED[task]].baselines.values())
        for task, by in found.items()
    }
    refusals = {
        ENCODER: sum(_refused(task, ENCODER, width) for task in GENERATION),
        PAIR: int(_refused("retrieval", PAIR, width)),
    }
    yield from judged(scores, baselines, refusals)
    condition = "the choice is between encoders and encoder–decoders, as in the course"
    yield Outside(condition, judged_beyond(scores))
    panels = []
    for task, by_family in scores.items():
        bars = {"": {family.replace("–", "–\n"): one for family, one in by_family.items()}}
        axes: dict[str, Any] = {"title": task, "y": SCORES[task], "y_limits": (0, 1.08)}
        panels.append(bar_chart(bars, Line(y=baselines[task]), **axes))
    yield figure(*panels, columns=2)


def judged(
    scores: Scores, baselines: Mapping[str, float], refusals: Mapping[str, int]
) -> Measurements:
    """Yield the measurements of encoders and encoder–decoders."""
    yield equal("generation tasks not supported by an encoder", refusals[ENCODER], len(GENERATION))
    yield equal("retrieval not supported by an encoder–decoder", refusals[PAIR], 1)
    yield _not_worse(scores, "classification", PAIR)
    for task, by in scores.items():
        above = by[RECOMMENDED[task]].value - baselines[task]
        yield at_least(f"{task}: {RECOMMENDED[task]} minus best baseline", above, 0)


def judged_beyond(scores: Scores) -> tuple[Measurement, ...]:
    """Return the measurements that compare the same families with decoders."""
    return tuple(_not_worse(scores, task, DECODER) for task in scores)


def _not_worse(scores: Scores, task: str, family: str) -> Measurement:
    """Return the lead of the recommended family; two standard errors and 0.01 are allowed."""
    recommended = RECOMMENDED[task]
    own, other = scores[task][recommended], scores[task][family]
    errors = [(score.high - score.low) / (2 * Z95) for score in (own, other)]
    allowed = 0.01 + 2 * math.hypot(*errors)
    return at_least(f"{task}: {recommended} minus {family}", own.value - other.value, -allowed)


def _refused(task: str, family: str, width: int) -> bool:
    """Return whether a family can't be trained for a task."""
    recipe = recipe_for(task, family, 1, width, 0)
    with_head = msgspec.structs.replace(recipe, head=RECIPES[task].head)
    return refused(lambda: plan_training(own_source(with_head), with_head, "unused"), UserError)


def _share(scores: TaskScores, task: str) -> Interval:
    """Return the task's score, from 0 to 1."""
    score, most = scores[SCORES[task]], 100 if SCORES[task] == "chrF" else 1
    return Interval(score.value / most, score.low / most, score.high / most)
