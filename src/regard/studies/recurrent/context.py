"""Context of recurrent networks: how far back it reaches, and whether it needs later input."""

from collections.abc import Mapping
from math import log
from typing import Annotated, Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor

from regard.config import override
from regard.data import IGNORE
from regard.models.builders import TokenClassifier
from regard.models.config import CausalConfig, DecoderConfig, FixedWindowConfig, RecurrentConfig
from regard.models.head_config import TokenClassificationHeadConfig
from regard.models.recurrent import RecurrentDecoder
from regard.positions.config import ShawVectorsConfig
from regard.runs.recipe import DataConfig, Recipe, TrainingConfig
from regard.runs.run import Run, describe_origin
from regard.studies.figure import Line, bar_chart, log_chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal, table
from regard.studies.model_cache import cached_checkpoints, cached_run
from regard.studies.moods import best, draw_weather, moods
from regard.studies.number_rows import Numbers, accuracy, plan_numbers, tokens_of
from regard.studies.recurrent.casing import Cell, CellKind
from regard.studies.study import EvidenceParts, Seed, study
from regard.training.plan import Plan

DISTANCES = (2, 4, 8, 16, 32)
LENGTH = 64
"""Number of tokens per row."""
TRAINING, TEST = 20_000, 500
"""Numbers of rows of symbols."""
WINDOW, RNN, ATTENTION = "window", "RNN", "attention"
CHECKPOINTS = 6
"""Number of checkpoints of a training at which losses are measured."""
Losses: TypeAlias = Mapping[int, float]
"""Losses in nats, by distance."""
Trained: TypeAlias = Mapping[str, Mapping[int, Losses]]
"""Losses of each model, by training step."""
MOOD_TRAINING, MOOD_TEST = 4000, 400
"""Numbers of rows of days."""
WAYS = ("one way", "both ways")
Days: TypeAlias = Int[Tensor, "rows days"]
"""Ids of the weather of each day."""
Right: TypeAlias = Mapping[tuple[str, str], float]
"""Accuracy by task, "past" or "future", and by directions."""


@study(trains=True)
def fixed_windows(
    window: Annotated[int, Meta(ge=1, le=64)] = 4,
    symbols: Annotated[int, Meta(ge=2, le=32)] = 8,
    width: Annotated[int, Meta(ge=8, le=256, multiple_of=2)] = 64,
    cell: Cell = "vanilla",
    steps: Annotated[int, Meta(ge=1, le=8000)] = 3000,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How far back does a language model use its context with a fixed window, a recurrent state,
    or attention?

    A fixed window contains no information about earlier tokens: the loss there is that of a uniform
    guess, ln V, after any training. An RNN learns short distances first and longer ones with more
    training, so its loss rises with distance. Attention has a low loss at all distances after a
    fifth of the steps. Its advantage over a window is ln V at each distance beyond the window, and
    its advantage over the RNN is larger at 32 tokens than at 2.

    $$ \mathcal L(d) = \ln V \;\; (d > \mathrm{window}) $$

    Each symbol of a random text is followed by a marker, which asks for the symbol 2, 4, 8, 16 or
    32 tokens back as the next token. The table has losses at several times of the same training.

    Figure. Loss against distance at the end of training. Dotted: a uniform guess, and the size of
    the window. The loss with a window is near 0 within the window and that of a guess beyond it;
    the loss with attention is near 0 at all distances. The loss of the RNN rises with distance.

    Args:
        window: tokens in the window
        symbols: number of symbols, V
        width: width of states
        steps: training steps of the RNN; a fifth for the others
    """
    few = max(1, steps // 5)
    trained: dict[str, dict[int, Losses]] = {}
    for name, model in models(window, width, cell).items():
        plan = plan_recall(model, symbols, steps if name == RNN else few, seed)
        checkpoints = cached_checkpoints(plan).items()
        trained[name] = {step: losses_of(run, symbols, seed) for step, run in checkpoints}
    rows = [
        (name, step, *losses.values())
        for name, by_step in trained.items()
        for step, losses in by_step.items()
        if name == RNN or step == few
    ]
    yield from judged_windows(trained, window, symbols)
    yield table(["model", "steps", *(f"distance {d}" for d in DISTANCES)], rows)
    guess = log(symbols)
    yield log_chart(
        DISTANCES,
        {name: by_step[max(by_step)].values() for name, by_step in trained.items()},
        lines=[Line(y=guess, label="guess"), Line(x=window, label="window")],
        x="distance of the repeated token",
        y="loss, in nats",
        y_scale="linear",
        y_limits=(-0.05, 1.1 * guess),
    )


def models(window: int, width: int, cell: CellKind) -> dict[str, CausalConfig]:
    """Return the configuration of each model, without dropout, since no row is read twice."""
    sizes: dict[str, Any] = {"context_length": LENGTH, "d_model": width, "dropout": 0.0}
    positions = ShawVectorsConfig(clip=max(DISTANCES))
    return {
        WINDOW: FixedWindowConfig(size=window, d_hidden=4 * width, **sizes),
        RNN: RecurrentConfig(cell=cell, n_layers=1, **sizes),
        ATTENTION: DecoderConfig(n_layers=1, n_heads=2, positions=positions, **sizes),
    }


def judged_windows(trained: Trained, window: int, symbols: int) -> Measurements:
    """Yield the measurements that the claim depends on."""
    guess, near, far = log(symbols), DISTANCES[0], DISTANCES[-1]
    losses = {name: by_step[max(by_step)] for name, by_step in trained.items()}
    for d in DISTANCES:
        name = f"{WINDOW} of {window}: loss at distance {d}"
        if d <= window:
            yield at_most(name, losses[WINDOW][d], 0.1 * guess)
        else:
            yield equal(name, losses[WINDOW][d], guess, within=0.05 * guess)
    rise = losses[RNN][far] - losses[RNN][near]
    yield at_most(f"RNN: loss at distance {near}", losses[RNN][near], 0.1 * guess)
    yield at_least(f"RNN: loss at distance {far} minus loss at distance {near}", rise, 0.25 * guess)
    first = trained[RNN][min(trained[RNN])]
    decreases = [first[d] - losses[RNN][d] for d in DISTANCES]
    yield at_least("RNN: largest decrease of a loss with training", max(decreases), 0.25 * guess)
    yield at_most("attention: largest loss", max(losses[ATTENTION].values()), 0.1 * guess)
    for other in (RNN,) if window < near else (WINDOW, RNN):  # beyond all distances alike
        gains = {d: losses[other][d] - losses[ATTENTION][d] for d in DISTANCES}
        name = f"advantage of attention over {other}: distance {far} minus distance {near}"
        yield at_least(name, gains[far] - gains[near], 0.25 * guess)


def draw_rows(rows: int, symbols: int, *seed: int) -> tuple[Numbers, Numbers]:
    """Return the ids of rows of alternating symbols and markers, V + the index of a distance.

    The labels are the symbols that markers ask for, IGNORE before the start of a row. They aren't
    part of the input, so that each needs its own lookup.
    """
    draw = np.random.default_rng(seed)
    ids = draw.integers(symbols, size=(rows, LENGTH))
    chosen = draw.integers(len(DISTANCES), size=(rows, LENGTH // 2))
    ids[:, 1::2] = symbols + chosen
    place = np.arange(1, LENGTH, 2) + 1 - np.array(DISTANCES)[chosen]
    asked = np.take_along_axis(ids, np.maximum(place, 0), axis=1)
    labels = np.full_like(ids, IGNORE)
    labels[:, 1::2] = np.where(place < 0, IGNORE, asked)
    return ids, labels


def plan_recall(model: CausalConfig, symbols: int, steps: int, seed: int) -> Plan:
    """Plan training on such rows. Matrices of RNNs use Muon, which trains vanilla cells faster."""
    settings = [
        *(f"seed={seed}", "data.validation=0"),
        *(f"training.steps={steps}", f"training.checkpoint_every={-(-steps // CHECKPOINTS)}"),
        *("training.batch=32", "training.lr=5e-3", "training.schedule.final=0.02"),
    ]
    if isinstance(model, RecurrentConfig):
        muon = ("optimizer.kind=muon", "optimizer.muon_lr=2e-2", "lr=2e-3")
        settings += [f"training.{setting}" for setting in muon]
    recipe = override(Recipe(model=model), settings)
    origin = describe_origin("distances", (), ()) | {"symbols": symbols, "rows": TRAINING}
    rows = draw_rows(TRAINING, symbols, seed, 0)
    return plan_numbers(recipe, origin, symbols + len(DISTANCES), *rows)


@torch.inference_mode()
def losses_of(run: Run, symbols: int, seed: int) -> dict[int, float]:
    """Return the mean loss on new rows, by distance."""
    rows = draw_rows(TEST, symbols, seed, 1)
    ids, labels = (torch.from_numpy(tokens_of(run, x)) for x in rows)
    loss = F.cross_entropy(run.language_model(ids).mT, labels, reduction="none")
    asked = torch.from_numpy(np.where(rows[1] == IGNORE, IGNORE, rows[0] - symbols))
    return {d: float(loss[asked == i].mean()) for i, d in enumerate(DISTANCES)}


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

    $$ P(\mathrm{right}) = \sum_{k} \binom{m}{k} 2^{-m} \max(p_k, 1 - p_k), \quad m = \max(0,
    3 - \mathrm{ahead}) $$

    A mood is good if at least two of three days are sunny; each day's weather is a coin flip. m of
    the three days are known; p_k is the probability of a good mood if k of them are sunny. With one
    later day, this gives 3 times in 4.

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
    sunny = draw_weather(MOOD_TEST, days, seed, 1)
    ids = torch.from_numpy(tokens_of(runs["past", "one way"], sunny.astype(np.int64)))
    right = {
        (task, ways): accuracy(scores(run, ids), torch.from_numpy(moods(sunny, shifts[task])))
        for (task, ways), run in runs.items()
    }
    online = online_difference(runs["past", "one way"], ids)
    yield from judged_moods(right, online, ahead)
    bars = {ways: {task: right[task, ways] for task in shifts} for ways in WAYS}
    limits = series([0, 1], [best(0), best(ahead)], "best without the future", "crosses")
    yield bar_chart(bars, limits, y="accuracy", y_limits=(0, 1.05))


def judged_moods(right: Right, online: float, ahead: int) -> Measurements:
    """Yield the measurements of the claim; `online` is the error of scores read day by day."""
    future, past = ({ways: right[task, ways] for ways in WAYS} for task in ("future", "past"))
    yield at_least("future: accuracy, both ways", future["both ways"], 0.99)
    yield equal("future: accuracy, one way", future["one way"], best(ahead), within=0.02)
    yield at_least("future: both ways minus one way", future["both ways"] - future["one way"], 0.2)
    yield at_least("past: accuracy, one way", past["one way"], 0.99)
    gain = past["both ways"] - past["one way"]
    yield equal("past: both ways minus one way", gain, 0, within=0.01)
    yield at_most("past, one way: error of scores read day by day", online, 1e-4)


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
    origin = describe_origin("moods", (), ()) | {"ahead": ahead, "rows": MOOD_TRAINING}
    sunny = draw_weather(MOOD_TRAINING, days, seed, 0)
    return plan_numbers(recipe, origin, 2, sunny.astype(np.int64), moods(sunny, ahead))


@torch.inference_mode()
def online_difference(run: Run, ids: Days) -> float:
    """Return the largest difference of the scores if the network reads one day at a time."""
    model = run.model
    assert isinstance(model, TokenClassifier)
    assert isinstance(model.body, RecurrentDecoder)
    state, outputs = model.body.init_state(*ids.shape), []
    for day in ids.unbind(1):
        hidden, state = model.body.extend(day[:, None], state)
        outputs.append(model.head(hidden[:, 0]))
    return float((torch.stack(outputs, 1) - scores(run, ids)).abs().max())


@torch.inference_mode()
def scores(run: Run, ids: Days) -> Float[Tensor, "rows days 2"]:
    """Return the logits of a bad and of a good mood."""
    found: Tensor = run.model(ids, torch.full((len(ids),), ids.shape[1]))
    return found
