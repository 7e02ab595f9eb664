"""What source and target are for in training, and the answer given or written by the model."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.builders import SequenceToSequence
from regard.runs.run import Run
from regard.studies.figure import one_chart, series
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    equal,
    informational,
)
from regard.studies.recurrent.casing import (
    ATTENTION,
    NONE,
    Cell,
    Longest,
    Rows,
    Setup,
    Steps,
    Width,
    body_of,
    loss,
)
from regard.studies.study import Seed, study

COUNT = 400
"""Texts."""


@study(trains=True)
def roles_of_sequences(
    cell: Cell = "vanilla",
    width: Width = 64,
    longest: Longest = 12,
    steps: Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What are the source and the target for in training, and does it matter whether the decoder
    reads the target or its own output?

    The source is what the prediction depends on; the target is what the loss compares it with and,
    shifted by one, what the decoder reads. Each side's embeddings learn from its own sequence
    alone. Given the target, a decoder without attention predicts more characters correctly than
    when it reads its own output; with attention, the difference is near zero.

    $$ J = -\sum_t \log P(y_t \mid y_{<t}, x) $$

    The loss sums over the target alone; the source's characters are never predicted. The source
    decides what is right. Given that of another text, the network predicts another answer, and its
    loss on this one is several nats per character.

    The target has two roles. As labels it says what is right; shifted by one, it is what the
    decoder has written so far, all of it right (teacher forcing; Williams & Zipser, 1989). So each
    character has its loss, whatever the model would have written, and all of them are trained at
    once. A side's embeddings get a gradient where its sequence has the character, and nowhere else:
    those of the encoder learn the source's alphabet, those of the decoder the target's.

    When the model answers, there is no target: it reads what it has written. After a mistake it
    goes on from a text that training never showed it. So accuracy in training is more than what one
    gets. Where each character is looked up in the source, a mistake before it changes little.

    Figure. Right characters by their place in the answer; lines: the decoder reads the target,
    dashes: its own output. With attention both are near 1. Without, they begin together, and dashes
    fall below the line.
    """
    setup = Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    measured = {NONE: measure(setup), ATTENTION: measure(setup.with_attention())}
    yield from judged(measured)
    lines = []
    for color, (name, one) in enumerate(measured.items()):
        places = range(1, len(one.forced) + 1)
        lines.append(series(places, one.forced, f"{name}, target read", color=color))
        lines.append(series(places, one.free, f"{name}, own output read", "dashes", color=color))
    yield one_chart(*lines, x="character", y="share that is right", y_limits=(-0.03, 1.05))


class Measured(NamedTuple):
    """Losses, and the share of right characters at each place of the answer."""

    losses: tuple[float, float, float]
    """With the text's own source and target, with another's source, with another's target read."""
    mismatches: tuple[int, int]
    """Characters in one of a side's sequences but without a gradient, or the other way round."""
    forced: Float[Tensor, " places"]
    free: Float[Tensor, " places"]
    after: tuple[float, float]
    """Of what is written freely after a right character, and after a wrong one."""


def measure(setup: Setup) -> Measured:
    """A network on new texts of the longest length."""
    run = setup.run()
    rows = Rows.of(run, setup.texts(setup.longest, COUNT))
    other = replace(rows, source=rows.source.roll(1, 0)), replace(rows, ids=rows.ids.roll(1, 0))
    with torch.inference_mode():
        own, source, target = (float(loss(run, one)) for one in (rows, *other))
    forced = (forced_ids(run, rows) == rows.labels)[:, :-1]
    free = (free_ids(run, rows) == rows.labels)[:, :-1]
    before, now = free[:, :-1], free[:, 1:].double()
    return Measured(
        (own, source, target),
        embedding_mismatches(run, rows),
        forced.double().mean(0),
        free.double().mean(0),
        (float(now[before].mean()), float(now[~before].mean())),
    )


def embedding_mismatches(run: Run, rows: Rows) -> tuple[int, int]:
    """Count characters whose embedding gets a gradient although absent, or none although present.

    Of the encoder with the source, and of the decoder with what it reads of the target.
    """
    sides = (body_of(run).encoder, body_of(run).decoder)
    gradients = torch.autograd.grad(loss(run, rows), [one.embedding.weight for one in sides])
    source, target = (
        int(((gradient != 0).any(-1) != torch.isin(torch.arange(len(gradient)), ids)).sum())
        for gradient, ids in zip(gradients, (rows.source, rows.ids), strict=True)
    )
    return source, target


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
    """What the claim requires of them."""
    for name, one in measured.items():
        own, source, target = one.losses
        yield informational(f"{name}: loss, in nats per character", own)
        yield at_least(f"{name}: loss with another text's source, more by", source - own, 1)
        yield informational(f"{name}: loss reading another text's target, more by", target - own)
        for side, count in zip(("encoder", "decoder"), one.mismatches, strict=True):
            yield equal(f"{name}, {side}: embeddings with the wrong gradient", count, 0)
        first = one.forced[0] - one.free[0]
        yield equal(f"{name}: first character, forced less free", first, 0)
    none, attention = measured[NONE], measured[ATTENTION]
    gap = none.forced.mean() - none.free.mean()
    yield at_least(f"{NONE}: right characters, forced less free", gap, 0.05)
    gap = (attention.forced.mean() - attention.free.mean()).abs()
    yield at_most(f"{ATTENTION}: right characters, between forced and free", gap, 0.02)
    more = none.after[0] - none.after[1]
    yield at_least(f"{NONE}: right after a right character, less after a wrong one", more, 0.1)
