"""Roles of source and target in training, with teacher forcing and in free running."""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.generate import generate_ids
from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.studies.figure import chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal, informational
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import ATTENTION, NONE
from regard.studies.study import EvidenceParts, Seed, study

COUNT = 400
"""Number of texts."""


@study(trains=True)
def roles_of_sequences(
    cell: casing.Cell = "vanilla",
    width: casing.Width = 64,
    longest: casing.Longest = 12,
    steps: casing.Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What are the roles of source and target in training, and does it matter whether the decoder
    reads the target or its own output?

    The prediction depends on the source. The loss compares it with the target, which the decoder
    also reads, shifted by one. Without attention, the decoder predicts more characters correctly
    when it reads the target than when it reads its own output. With attention, the difference is
    near zero.

    $$ J = -\sum_t \log P(y_t \mid y_{<t}, x) $$

    The loss is measured with the source of another text, and with another target read. Accuracy is
    that of the next character after the right prefix (teacher forcing; Williams & Zipser, 1989),
    and in greedy decoding.

    Figure. Accuracy by position in the answer. Lines: the decoder reads the target; dashes: it
    reads its own output. With attention both are near 1. Without attention they begin together, and
    the dashes fall below the line.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    measured = {NONE: measure(setup), ATTENTION: measure(setup.with_attention())}
    yield from judged(measured)
    lines = []
    for color, (name, one) in enumerate(measured.items()):
        places = range(1, len(one.forced) + 1)
        lines.append(series(places, one.forced, f"{name}, teacher forcing", color=color))
        lines.append(series(places, one.free, f"{name}, free running", "dashes", color=color))
    yield chart(*lines, x="character", y="accuracy", y_limits=(-0.03, 1.05))


class Measured(NamedTuple):
    """Losses and accuracy of one network."""

    losses: tuple[float, float, float]
    """Loss with the text's own source and target; with another source; with another target read."""
    forced: Float[Tensor, " places"]
    """Accuracy at each place of the answer under teacher forcing."""
    free: Float[Tensor, " places"]
    """Accuracy at each place in free running."""
    after: tuple[float, float]
    """Accuracy in free running after a right character, and after a wrong one."""


def measure(setup: casing.Setup) -> Measured:
    """Measure a network on new texts of the longest length."""
    run = setup.run()
    rows = casing.Rows.of(run, setup.texts(setup.longest, COUNT))
    other = replace(rows, source=rows.source.roll(1, 0)), replace(rows, ids=rows.ids.roll(1, 0))
    with torch.inference_mode():
        own, source, target = (float(casing.loss(run, one)) for one in (rows, *other))
    forced = (forced_ids(run, rows) == rows.labels)[:, :-1]
    free = (free_ids(run, rows) == rows.labels)[:, :-1]
    before, now = free[:, :-1], free[:, 1:].double()
    return Measured(
        (own, source, target),
        forced.double().mean(0),
        free.double().mean(0),
        (float(now[before].mean()), float(now[~before].mean())),
    )


@torch.inference_mode()
def forced_ids(run: Run, rows: casing.Rows) -> Int[Tensor, "b n"]:
    """Return the most probable token after each prefix of the right answer."""
    found: Tensor = run.model(rows.source, rows.lengths, rows.ids).argmax(-1)
    return found


@torch.inference_mode()
def free_ids(run: Run, rows: casing.Rows) -> Int[Tensor, "b n"]:
    """Return the tokens of greedy decoding."""
    assert isinstance(run.model, SequenceToSequence)
    model = run.model.condition(rows.source, rows.lengths)
    starts, length = rows.ids[:, :1].tolist(), rows.ids.shape[1]
    return torch.tensor([one.ids for one in generate_ids(model, starts, max_new_tokens=length)])


def judged(measured: dict[str, Measured]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    for name, one in measured.items():
        own, source, target = one.losses
        yield at_least(f"{name}: loss with another source minus own", source - own, 1)
        yield informational(f"{name}: loss with another target read minus own", target - own)
        first = one.forced[0] - one.free[0]
        yield equal(f"{name}: first character, teacher forcing minus free running", first, 0)
    none, attention = measured[NONE], measured[ATTENTION]
    gap = none.forced.mean() - none.free.mean()
    yield at_least(f"{NONE}: accuracy, teacher forcing minus free running", gap, 0.05)
    gap = (attention.forced.mean() - attention.free.mean()).abs()
    yield at_most(f"{ATTENTION}: accuracy, |teacher forcing − free running|", gap, 0.02)
    more = none.after[0] - none.after[1]
    yield at_least(f"{NONE}: accuracy after a right character minus after a wrong one", more, 0.1)
