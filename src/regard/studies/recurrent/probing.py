"""What can be read from the states of an encoder and of a decoder."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor

from regard.runs.run import Run
from regard.studies.figure import Line, one_chart, series
from regard.studies.finding import EvidenceParts, Measurement, at_least, table
from regard.studies.recurrent.casing import (
    ATTENTION,
    NONE,
    TOKEN,
    Cell,
    Longest,
    Rows,
    Setup,
    Steps,
    Width,
    body_of,
)
from regard.studies.ridge import fit_probe
from regard.studies.study import Seed, study

COUNT = 600
"""Texts; the probes are fitted to two thirds of them, and asked about the others."""
UNTRAINED = "untrained"
ENCODER, DECODER = "encoder", "decoder"
READ = ("place", "task", "character")
"""What the probes read."""


@study(trains=True)
def probing(
    cell: Cell = "vanilla",
    width: Width = 64,
    longest: Longest = 12,
    steps: Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Do the states of encoder and decoder encode position, task and text?

    With attention, a linear map reads position and task from the states of both sides, and the
    current character from those of the encoder. Without attention, the last state holds more of the
    beginning of the text, which is written first, and less of its end.

    $$ \hat z = A h + b, \quad (A, b) = \operatorname{argmin} \sum_i \| z_i - A h_i - b \|^2 +
    \lambda \| A \|^2 $$

    A linear probe is the simplest reader: if a linear map can tell z from a state, z is there,
    in a form that the next layer could use. It is fitted to some texts and asked about others. That
    it succeeds doesn't say that the network uses it; so the same probes are asked about a network
    that was never trained.

    For the diagonal of the attention, the encoder's states must tell where they stand, and the
    decoder's how far it has come: both count. (The decoder's tell the task in a new network too,
    for it reads the case of what it has written.)

    The decoder without attention has to know the next characters from the last state. A new network
    remembers what it has read last; training makes room for what is to be written first, at the
    cost of the end. With attention it stays as it was, for the text is looked up: the decoder's
    states hold little of the character that they are about to write.

    Figure. How well each character of a text can be read from the encoder's last state; dotted: the
    commonest character as a guess. With attention, as in a new network, the last ones are there and
    the first are not; without attention more of the first ones is there, and less of the last.
    """
    setup = Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    attending = setup.with_attention()
    runs = {ATTENTION: attending.run(), NONE: setup.run(), UNTRAINED: attending.plan().run}
    texts = setup.texts(longest, COUNT)
    measured = {name: measure(run, Rows.of(run, texts)) for name, run in runs.items()}
    yield from judged(measured)
    rows = [
        (name, side, *(one.read[side, what] for what in READ), one.guess)
        for name, one in measured.items()
        for side in (ENCODER, DECODER)
    ]
    yield table(["network", "states", "place, R²", "task", "character", "it by a guess"], rows)
    lines = [series(range(1, len(one.last) + 1), one.last, name) for name, one in measured.items()]
    yield one_chart(
        *lines,
        Line(y=measured[ATTENTION].guess, label="guess"),
        x="character of the text",
        y="share read from the last state",
        y_limits=(0, 1.05),
    )


class Measured(NamedTuple):
    """Of one network."""

    read: dict[tuple[str, str], float]
    """By side and by what is read: R² for the place, else the share that is right."""
    last: list[float]
    """The share of characters that are read from the encoder's last state, the first first."""
    guess: float
    """The share of the commonest character."""


def measure(run: Run, rows: Rows) -> Measured:
    """All probes of one network.

    The encoder's states are asked for the character that they have just read, the decoder's for the
    one that they are about to write.
    """
    encoder, decoder = states_of(run, rows)
    task = rows.source[:, 1:2]  # the letter of <U> or <L>
    characters = _folded(run, rows.source[:, TOKEN:])
    encoder, decoder = encoder[:, TOKEN:], decoder[:, : characters.shape[1]]
    read = {}
    for side, states in ((ENCODER, encoder), (DECODER, decoder)):
        place = torch.arange(states.shape[1]).expand(states.shape[:2])
        read[side, "place"] = explained(states, place)
        read[side, "task"] = told_apart(states, task.expand(states.shape[:2]))
        read[side, "character"] = told_apart(states, characters)
    last = encoder[:, -1:]
    return Measured(
        read=read,
        last=[told_apart(last, one[:, None]) for one in characters.unbind(1)],
        guess=float(characters.flatten().bincount().max() / characters.numel()),
    )


@torch.inference_mode()
def states_of(run: Run, rows: Rows) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b m d"]]:
    """Of the encoder, after each character read; of the decoder, before each is written."""
    body = body_of(run)
    hidden, _ = body.encoder.encode(rows.source, rows.lengths)
    start = body.encode(rows.source, rows.lengths).decoder
    return hidden, body.decoder.extend(rows.ids, start)[0]


def explained(states: Float[Tensor, "b n d"], values: Int[Tensor, "b n"]) -> float:
    """R²: the share of the variance of numbers that a probe explains, on new texts."""
    guess, target = _probed(states, values[..., None].double())
    return float(1 - (guess - target).square().sum() / (target - target.mean()).square().sum())


def told_apart(states: Float[Tensor, "b n d"], classes: Int[Tensor, "b n"]) -> float:
    """Accuracy of a probe on new texts."""
    guess, target = _probed(states, F.one_hot(classes).double())
    return float((guess.argmax(-1) == target.argmax(-1)).double().mean())


Targets: TypeAlias = Float64[Tensor, "b n k"]


def _probed(states: Float[Tensor, "b n d"], targets: Targets) -> tuple[Targets, Targets]:
    """Fit a probe to two thirds of the texts; return what it says of the others, and what is."""
    fitted = 2 * len(states) // 3
    x, y = states.double(), targets
    probe = fit_probe(x[:fitted].flatten(0, 1), y[:fitted].flatten(0, 1))
    return probe(x[fitted:]), y[fitted:]


def _folded(run: Run, ids: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """The same characters in lower case, numbered."""
    texts = [run.tokenizer.decode(row).lower() for row in ids.tolist()]
    known = sorted(set().union(*texts))
    return torch.tensor([[known.index(character) for character in text] for text in texts])


def judged(measured: Mapping[str, Measured]) -> Iterable[Measurement]:
    """What the claim requires of them."""
    attention, none = measured[ATTENTION], measured[NONE]
    for side in (ENCODER, DECODER):
        yield at_least(f"attention, {side}: place, R²", attention.read[side, "place"], 0.9)
        yield at_least(f"attention, {side}: task", attention.read[side, "task"], 0.9)
    character = attention.read[ENCODER, "character"]
    yield at_least("attention, encoder: character just read", character, 0.95)
    ahead = none.read[DECODER, "character"] - attention.read[DECODER, "character"]
    yield at_least("decoder: character to be written, without attention more by", ahead, 0.05)
    for half, more, less in (("first", NONE, ATTENTION), ("last", ATTENTION, NONE)):
        gain = held(measured[more], half) - held(measured[less], half)
        yield at_least(f"last state: {half} half of the text, with {more} more by", gain, 0.02)


def held(one: Measured, half: str) -> float:
    """Share of characters of a half of the text that can be read from the last state."""
    middle = len(one.last) // 2
    part = one.last[:middle] if half == "first" else one.last[middle:]
    return sum(part) / len(part)
