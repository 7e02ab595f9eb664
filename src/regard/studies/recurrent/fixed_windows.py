"""What a language model sees of a symbol that stood far back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Annotated, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from msgspec import Meta

from regard.data import IGNORE
from regard.drawing import COLORS, INK, panels
from regard.models.config import (
    CausalConfig,
    DecoderConfig,
    FixedWindowConfig,
    RecurrentConfig,
    ShawVectorsConfig,
)
from regard.runs.recipe import CosineConfig, DataConfig, Recipe, TrainingConfig
from regard.runs.run import Run, describe_origin
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    equal,
    table,
)
from regard.studies.model_cache import cached_run
from regard.studies.study import Seed, study
from regard.text.tokenizer import number_tokenizer
from regard.training.plan import Plan
from regard.training.plan_task import plan_labeled_rows

DISTANCES = (2, 4, 8, 16, 32)
LENGTH = 80
"""Tokens of a row."""
TRAINING, TEST = 20_000, 500
"""Rows."""
WINDOW, RNN, ATTENTION = "window", "RNN", "attention"
Losses: TypeAlias = Mapping[str, Mapping[int, float]]
"""Of each model, by distance, in nats."""


@study(
    asked=["jhu-hw5 1.13"],
    question="How far back can a language model use its context, with a window, a state, or "
    "attention?",
    claim="A fixed window has no information on earlier tokens: its loss there is that of a "
    "guess, ln V. The loss of an RNN rises with distance, as everything has to fit into"
    " its state. Attention has the same loss at all distances, so its advantage is "
    "greatest at the largest.",
    formula=r"\mathcal L(d) = \ln V \;\; (d > \mathrm{window})",
    trains=True,
)
def fixed_windows(
    window: Annotated[int, Meta(ge=1, le=64, description="tokens that the window holds")] = 8,
    symbols: Annotated[int, Meta(ge=2, le=32, description="symbols, V")] = 8,
    width: Annotated[int, Meta(ge=8, le=256, multiple_of=2, description="width of states")] = 64,
    steps: Annotated[int, Meta(ge=1, le=4000, description="steps of training")] = 600,
    seed: Seed = 0,
) -> Evidence:
    """In the text symbols are drawn at random, and each is followed by a sign that says: next comes
    what stood 2, 4, 8, 16 or 32 tokens back. So each prediction depends on one token at a known
    distance, and on nothing else.

    The model with a window sees the last tokens only, and of all before them not even that they
    were there. An RNN has read everything, but keeps it in a state of fixed size; what stood 32
    tokens back has been written over 31 times. Attention looks at the token itself, wherever it
    stands. What it pays for that is memory that grows with the text.
    """
    losses = {
        name: losses_of(cached_run(plan_recall(model, symbols, steps, seed)), symbols, seed)
        for name, model in models(window, width).items()
    }
    return Evidence(
        numbers=tuple(judged(losses, window, symbols)),
        figure=_drawn(losses, window, symbols),
        table=table(
            ["distance", *losses],
            [(d, *(of_one[d] for of_one in losses.values())) for d in DISTANCES],
        ),
    )


def models(window: int, width: int) -> dict[str, CausalConfig]:
    """One of each family; dropout is left out, for no row is seen twice."""
    return {
        WINDOW: FixedWindowConfig(
            context_length=LENGTH, size=window, d_model=width, d_hidden=4 * width, dropout=0.0
        ),
        RNN: RecurrentConfig(context_length=LENGTH, n_layers=1, d_model=width, dropout=0.0),
        ATTENTION: DecoderConfig(
            context_length=LENGTH,
            n_layers=1,
            n_heads=2,
            d_model=width,
            dropout=0.0,
            positions=ShawVectorsConfig(clip=max(DISTANCES)),
        ),
    }


def judged(losses: Losses, window: int, symbols: int) -> Iterable[Measurement]:
    """What the claim wants of them."""
    guess, near, far = log(symbols), DISTANCES[0], DISTANCES[-1]
    for d in DISTANCES:
        name = f"{WINDOW} of {window}: loss at distance {d}"
        if d <= window:
            yield at_most(name, losses[WINDOW][d], 0.1 * guess)
        else:
            yield equal(name, losses[WINDOW][d], guess, within=0.05 * guess)
    rise = losses[RNN][far] - losses[RNN][near]
    yield at_most(f"RNN: loss at distance {near}", losses[RNN][near], 0.1 * guess)
    yield at_least(f"RNN: loss at {far} less that at {near}", rise, 0.25 * guess)
    yield at_most("attention: largest loss", max(losses[ATTENTION].values()), 0.1 * guess)
    for other in (WINDOW, RNN):
        gains = {d: losses[other][d] - losses[ATTENTION][d] for d in DISTANCES}
        name = f"attention's advantage over {other} at {far}, less that at {near}"
        yield at_least(name, gains[far] - gains[near], 0.25 * guess)


@dataclass(frozen=True)
class Rows:
    """Symbols and signs by turns."""

    ids: Int[np.ndarray, "rows length"]
    """A symbol, or V + the number of a distance."""
    labels: Int[np.ndarray, "rows length"]
    """At each sign the symbol that it asks for; IGNORE where it would stand before the row."""


def draw_rows(rows: int, symbols: int, *seed: int) -> Rows:
    """The answer isn't written into the row, as in a probe, so that nothing gives it away twice."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(symbols, size=(rows, LENGTH))
    chosen = draw.integers(len(DISTANCES), size=(rows, LENGTH // 2))
    ids[:, 1::2] = symbols + chosen
    place = np.arange(1, LENGTH, 2) + 1 - np.array(DISTANCES)[chosen]
    asked = np.take_along_axis(ids, np.maximum(place, 0), axis=1)
    labels = np.full_like(ids, IGNORE)
    labels[:, 1::2] = np.where(place < 0, IGNORE, asked)
    return Rows(ids, labels)


def plan_recall(model: CausalConfig, symbols: int, steps: int, seed: int) -> Plan:
    """Training on such rows."""
    recipe = Recipe(
        seed=seed,
        data=DataConfig(validation=0.0),
        model=model,
        training=TrainingConfig(steps=steps, batch=32, lr=5e-3, schedule=CosineConfig(final=0.02)),
    )
    origin = describe_origin("distances", (), ()) | {"symbols": symbols, "rows": TRAINING}
    run = Run.new(Path("unused"), recipe, number_tokenizer(symbols + len(DISTANCES)), origin)
    made = draw_rows(TRAINING, symbols, seed, 0)
    labels = _shifted(made.labels, _first(run))
    return plan_labeled_rows(run, made.ids + _first(run), labels, "training")


@torch.inference_mode()
def losses_of(run: Run, symbols: int, seed: int) -> dict[int, float]:
    """Mean loss on new rows, by the distance that is asked for."""
    rows = draw_rows(TEST, symbols, seed, 1)
    labels = torch.from_numpy(_shifted(rows.labels, _first(run)))
    logits = run.language_model(torch.from_numpy(rows.ids + _first(run)))
    loss = F.cross_entropy(logits.mT, labels, reduction="none", ignore_index=IGNORE)
    asked = torch.from_numpy(rows.ids - symbols)
    return {
        d: float(loss[(asked == i) & (labels != IGNORE)].mean()) for i, d in enumerate(DISTANCES)
    }


def _first(run: Run) -> int:
    """The id of the number 0."""
    return run.tokenizer.encode("0")[0]


def _shifted(labels: Int[np.ndarray, "rows length"], by: int) -> Int[np.ndarray, "rows length"]:
    return np.where(labels == IGNORE, IGNORE, labels + by)


def _drawn(losses: Losses, window: int, symbols: int) -> Drawing:
    with panels() as (figure, (axes,)):
        for i, (name, of_one) in enumerate(losses.items()):
            axes.plot(DISTANCES, list(of_one.values()), "o-", color=COLORS[i], label=name)
        axes.axhline(log(symbols), linestyle=":", color=INK, linewidth=1)
        axes.axvline(window, linestyle=":", color=COLORS[0], linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="distance of what is repeated, in tokens", ylabel="loss, in nats")
        axes.set(xticks=DISTANCES, ylim=(-0.05, 1.1 * log(symbols)))
        axes.set_xticklabels([str(d) for d in DISTANCES])
        axes.legend()
        return drawing(
            figure,
            "Loss against distance. The window's is near 0 within the window (dotted, upright) and "
            "that of a guess beyond it (dotted, level); the RNN's rises with distance; attention's "
            "stays near 0.",
            name="fixed-windows",
        )
