"""The answer given step by step, or written by the model itself."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.drawing import COLORS, panels
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.studies.finding import Drawing, Evidence, Measurement, at_least, at_most, drawing, equal
from regard.studies.recurrent.casing import Longest, Rows, Seed, Setup, Steps, Width
from regard.studies.study import study

COUNT = 400
"""Texts."""


@study(
    asked=["eecs182-disc8 1.a.iii"],
    question="Does it matter whether the decoder is given the right answer or its own output?",
    claim="Given the right answer, a decoder without attention predicts more characters "
    "correctly than when it generates alone, since errors propagate; the first "
    "character is the same. With attention, the difference is close to zero.",
    formula=r"P(y \mid x) = \prod_t P(y_t \mid y_{<t}, x)",
    trains=True,
)
def teacher_forcing(
    width: Width = 128, longest: Longest = 16, steps: Steps = 800, seed: Seed = 0
) -> Evidence:
    """In training the decoder reads the right answer as far as it goes, and predicts one more
    character (teacher forcing; Williams & Zipser, 1989). That makes all steps of the loss
    independent of what the model would have written, and there is always something to learn from.

    When it answers, there is no right answer to read: it reads what it has written. After a mistake
    it goes on from a text that training never showed it, and that no longer tells the place or the
    word. So accuracy in training is more than what one gets. Where each character is looked up in
    the source, a mistake before it changes little.
    """
    common = {"width": width, "longest": longest, "steps": steps, "seed": seed}
    measured = {
        kind: measure(Setup(attention=kind, **common))  # type: ignore[arg-type]
        for kind in ("none", "softmax")
    }
    return Evidence(numbers=tuple(judged(measured)), figure=_drawn(measured))


@dataclass(frozen=True)
class Measured:
    """The share of right characters at each place of the answer."""

    forced: Float[Tensor, " places"]
    free: Float[Tensor, " places"]
    after: tuple[float, float]
    """Of what is written freely after a right character, and after a wrong one."""


def measure(setup: Setup) -> Measured:
    """A network on new texts of the longest length."""
    run = setup.run()
    rows = Rows.of(run, setup.texts(setup.longest, COUNT))
    forced = (forced_ids(run, rows) == rows.labels)[:, :-1]
    free = (free_ids(run, rows) == rows.labels)[:, :-1]
    return Measured(forced.double().mean(0), free.double().mean(0), _after(free))


@torch.inference_mode()
def forced_ids(run: Run, rows: Rows) -> Int[Tensor, "b n"]:
    """What is most probable after each part of the right answer."""
    found: Tensor = run.model(rows.source, rows.lengths, rows.ids).argmax(-1)
    return found


@torch.inference_mode()
def free_ids(run: Run, rows: Rows) -> Int[Tensor, "b n"]:
    """What is most probable after all that was most probable before."""
    assert isinstance(run.model, SequenceToSequence)
    model = run.model.condition(rows.source, rows.lengths)
    count, length = rows.ids.shape
    states, ids = model.init_state(count, length), [rows.ids[:, 0]]
    for _ in range(length):
        scores, states = model.extend(ids[-1][:, None], states)
        ids.append(scores.argmax(-1))
    return torch.stack(ids[1:], 1)


def judged(measured: dict[str, Measured]) -> Iterable[Measurement]:
    """What the claim wants of them."""
    for kind, one in measured.items():
        name = "no attention" if kind == "none" else "attention"
        yield equal(f"{name}: first character, forced less free", one.forced[0] - one.free[0], 0)
    none, attention = measured["none"], measured["softmax"]
    gap = none.forced.mean() - none.free.mean()
    yield at_least("no attention: right characters, forced less free", gap, 0.05)
    gap = (attention.forced.mean() - attention.free.mean()).abs()
    yield at_most("attention: right characters, between forced and free", gap, 0.02)
    yield at_least(
        "no attention: right after a right character, less after a wrong one",
        none.after[0] - none.after[1],
        0.1,
    )


def _after(right: Bool[Tensor, "b n"]) -> tuple[float, float]:
    before, now = right[:, :-1], right[:, 1:].double()
    return float(now[before].mean()), float(now[~before].mean())


def _drawn(measured: dict[str, Measured]) -> Drawing:
    with panels() as (figure, (axes,)):
        for i, (kind, one) in enumerate(measured.items()):
            name = "no attention" if kind == "none" else "attention"
            places = range(1, len(one.forced) + 1)
            axes.plot(places, one.forced, color=COLORS[i], label=f"{name}, right answer read")
            axes.plot(places, one.free, "--", color=COLORS[i], label=f"{name}, own answer read")
        axes.set(xlabel="character", ylabel="share that is right", ylim=(-0.03, 1.05))
        axes.legend(fontsize=8)
        return drawing(
            figure,
            "Right characters by their place in the answer. With attention both lines are near 1. "
            "Without, they begin together, and the model that reads its own answer falls below "
            "the one that reads the right one.",
            name="teacher-forcing",
        )
