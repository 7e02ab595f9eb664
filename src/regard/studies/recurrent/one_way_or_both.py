"""Benefits and costs of bidirectional networks."""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.models.builders import TokenClassifier
from regard.models.config import RecurrentConfig
from regard.models.head_config import TokenClassificationHeadConfig
from regard.models.recurrent import RecurrentDecoder
from regard.runs.recipe import DataConfig, Recipe, TrainingConfig
from regard.runs.run import Run, describe_origin
from regard.studies.figure import bar_chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal
from regard.studies.model_cache import cached_run
from regard.studies.moods import Weather, best, draw_weather, moods
from regard.studies.number_rows import accuracy, plan_numbers, tokens_of
from regard.studies.study import EvidenceParts, Seed, study
from regard.training.plan import Plan

TRAINING, TEST = 4000, 400
"""Number of rows of days."""
WAYS = ("one way", "both ways")


@study(trains=True)
def one_way_or_both(
    ahead: Annotated[int, Meta(ge=0, le=5)] = 1,
    days: Annotated[int, Meta(ge=12, le=64)] = 42,
    steps: Annotated[int, Meta(ge=1, le=2000)] = 200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Should a recurrent network be unidirectional or bidirectional?

    If a label depends on later input, the bidirectional network is always right, and the
    unidirectional one only as often as the known days allow. If the past suffices, one direction is
    as good, and it answers day by day.

    $$ P(\mathrm{right}) = \sum_{k} \binom{m}{k} 2^{-m} \max(p_k, 1 - p_k), \quad m = 3 -
    \mathrm{ahead} $$

    A crab is in a good mood if at least two of three days are sunny; each day's weather is a coin
    flip. If tomorrow is one of them, a unidirectional network has seen two of three and is right 3
    times in 4.

    Figure. Bars: accuracy; crosses: the best possible accuracy without the future. If the mood
    depends on the past, both networks are right. If it depends on later days, only the
    bidirectional network is.

    Args:
        ahead: number of days after today that the mood depends on
        days: days per row
        steps: training steps
    """
    shifts = {"past": 0, "future": ahead}
    runs = {
        (task, ways): cached_run(plan_moods(shift, ways == "both ways", days, steps, seed))
        for task, shift in shifts.items()
        for ways in WAYS
    }
    sunny = draw_weather(TEST, days, seed, 1)
    right = {
        (task, ways): accuracy(scores(run, sunny), torch.from_numpy(moods(sunny, shifts[task])))
        for (task, ways), run in runs.items()
    }
    online = online_difference(runs["past", "one way"], sunny)
    hindsight = {ways: change_by_the_future(runs["past", ways], sunny) for ways in WAYS}
    yield from judged(right, online, hindsight, ahead)
    bars = {ways: {task: right[task, ways] for task in shifts} for ways in WAYS}
    limits = series([0, 1], [best(0), best(ahead)], "best without the future", "crosses")
    yield bar_chart(bars, limits, y="accuracy", y_limits=(0, 1.05))


def judged(
    right: Mapping[tuple[str, str], float],
    online: float,
    hindsight: Mapping[str, float],
    ahead: int,
) -> Measurements:
    """Yield the measurements that the claim depends on.

    Accuracy by task and directions, the largest difference of the scores if days are read one by
    one, and the change of scores by later days.
    """
    future, past = ({ways: right[task, ways] for ways in WAYS} for task in ("future", "past"))
    yield at_least("future: accuracy, both ways", future["both ways"], 0.99)
    yield equal("future: accuracy, one way", future["one way"], best(ahead), within=0.02)
    yield at_least("future: both ways minus one way", future["both ways"] - future["one way"], 0.2)
    yield at_least("past: accuracy, one way", past["one way"], 0.99)
    gain = past["both ways"] - past["one way"]
    yield equal("past: both ways minus one way", gain, 0, within=0.01)
    yield at_most("past, one way: error of scores read day by day", online, 1e-4)
    yield equal("one way: change by later days", hindsight["one way"], 0)
    yield at_least("both ways: change by later days", hindsight["both ways"], 1e-3)


def plan_moods(ahead: int, bidirectional: bool, days: int, steps: int, seed: int) -> Plan:
    """Plan training of a small network that predicts the mood of each day."""
    recipe = Recipe(
        seed=seed,
        data=DataConfig(validation=0.0),
        model=RecurrentConfig(
            context_length=days, n_layers=1, d_model=16, dropout=0.0, bidirectional=bidirectional
        ),
        head=TokenClassificationHeadConfig(labels=("bad", "good")),
        training=TrainingConfig(steps=steps, lr=1e-2),
    )
    origin = describe_origin("moods", (), ()) | {"ahead": ahead, "rows": TRAINING}
    sunny = draw_weather(TRAINING, days, seed, 0)
    return plan_numbers(recipe, origin, 2, sunny.astype(np.int64), moods(sunny, ahead))


@torch.inference_mode()
def online_difference(run: Run, sunny: Weather) -> float:
    """Return the largest difference of the scores if the network reads one day at a time."""
    ids, model = _ids(run, sunny), run.model
    assert isinstance(model, TokenClassifier)
    assert isinstance(model.body, RecurrentDecoder)
    state, outputs = model.body.init_state(*ids.shape), []
    for day in ids.unbind(1):
        hidden, state = model.body.extend(day[:, None], state)
        outputs.append(model.head(hidden[:, 0]))
    return float((torch.stack(outputs, 1) - scores(run, sunny)).abs().max())


def change_by_the_future(run: Run, sunny: Weather) -> float:
    """Return the largest change of the scores in the first half if the second half is inverted."""
    half = sunny.shape[1] // 2
    other = np.concatenate([sunny[:, :half], ~sunny[:, half:]], axis=1)
    change = scores(run, sunny) - scores(run, other)
    return float(change[:, :half].abs().max())


@torch.inference_mode()
def scores(run: Run, sunny: Weather) -> Float[Tensor, "rows days 2"]:
    """Return the logits of a bad and of a good mood."""
    ids = _ids(run, sunny)
    found: Tensor = run.model(ids, torch.full((len(ids),), ids.shape[1]))
    return found


def _ids(run: Run, sunny: Weather) -> Int[Tensor, "rows days"]:
    return torch.from_numpy(tokens_of(run, sunny.astype(np.int64)))
