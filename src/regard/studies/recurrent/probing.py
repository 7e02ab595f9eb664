"""Linear probes of the states of an encoder and a decoder."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor

from regard.runs.run import Run
from regard.studies.figure import Line, chart, series
from regard.studies.finding import Measurements, at_least, table
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import ATTENTION, NONE, TOKEN
from regard.studies.ridge import fit_probe
from regard.studies.study import EvidenceParts, Seed, study

COUNT = 600
"""Number of texts; the probes are fitted to two thirds of them, and tested on the others."""
UNTRAINED = "untrained"
ENCODER, DECODER = "encoder", "decoder"
READ = ("position", "task", "character")
"""Targets of the probes."""


@study(trains=True)
def probing(
    cell: casing.Cell = "vanilla",
    width: casing.Width = 64,
    longest: casing.Longest = 12,
    steps: casing.Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""Do the states of encoder and decoder encode position, task and text?

    With attention, a linear probe reads position and task from the states of both sides, and the
    current character from those of the encoder. Without attention, the last state contains more of
    the beginning of the text, which is written first, and less of its end.

    $$ \hat z = A h + b, \quad (A, b) = \operatorname{argmin} \sum_i \| z_i - A h_i - b \|^2 +
    \lambda \| A \|^2 $$

    The probe is fitted to some texts and tested on others. Its success doesn't show that the
    network uses z, so the same probes are applied to an untrained network as well. (Its decoder
    states encode the task too, since the decoder reads the case of the characters before.)

    Figure. Accuracy of a probe for each character of a text on the encoder's last state. Dotted:
    the most frequent character as a guess. With attention, as before training, the last characters
    can be read and the first can't; without attention more of the first ones can be read, and less
    of the last.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    attending = setup.with_attention()
    runs = {ATTENTION: attending.run(), NONE: setup.run(), UNTRAINED: attending.plan().run}
    texts = setup.texts(longest, COUNT)
    measured = {name: measure(run, casing.Rows.of(run, texts)) for name, run in runs.items()}
    yield from judged(measured)
    rows = [
        (name, side, *(one.read[side, what] for what in READ), one.guess)
        for name, one in measured.items()
        for side in (ENCODER, DECODER)
    ]
    yield table(["network", "states", "position, R²", "task", "character", "most frequent"], rows)
    lines = [series(range(1, len(one.last) + 1), one.last, name) for name, one in measured.items()]
    yield chart(
        *lines,
        Line(y=measured[ATTENTION].guess, label="guess"),
        x="character of the text",
        y="accuracy on the last state",
        y_limits=(0, 1.05),
    )


class Measured(NamedTuple):
    """Probes of one network."""

    read: dict[tuple[str, str], float]
    """R² for the position, accuracy for task and character, by side and target."""
    last: list[float]
    """Accuracy for each character of the text on the encoder's last state, in order."""
    guess: float
    """Share of the most frequent character."""


def measure(run: Run, rows: casing.Rows) -> Measured:
    """Apply all probes to a network.

    The target is the character just read for the encoder's states, and the next one for the
    decoder's.
    """
    encoder, decoder = states_of(run, rows)
    task = rows.source[:, 1:2]  # the letter of <U> or <L>
    characters = _folded(run, rows.source[:, TOKEN:])
    encoder, decoder = encoder[:, TOKEN:], decoder[:, : characters.shape[1]]
    read = {}
    for side, states in ((ENCODER, encoder), (DECODER, decoder)):
        position = torch.arange(states.shape[1]).expand(states.shape[:2])
        read[side, "position"] = r_squared(states, position)
        read[side, "task"] = accuracy(states, task.expand(states.shape[:2]))
        read[side, "character"] = accuracy(states, characters)
    last = encoder[:, -1:]
    return Measured(
        read=read,
        last=[accuracy(last, one[:, None]) for one in characters.unbind(1)],
        guess=float(characters.flatten().bincount().max() / characters.numel()),
    )


@torch.inference_mode()
def states_of(run: Run, rows: casing.Rows) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b m d"]]:
    """Return the encoder's states after each character, and the decoder's before each."""
    body = casing.body_of(run)
    hidden, _ = body.encoder.encode(rows.source, rows.lengths)
    start = body.encode(rows.source, rows.lengths).decoder
    return hidden, body.decoder.extend(rows.ids, start)[0]


def r_squared(states: Float[Tensor, "b n d"], values: Int[Tensor, "b n"]) -> float:
    """Return R² of a probe on new texts."""
    guess, target = _probed(states, values[..., None].double())
    return float(1 - (guess - target).square().sum() / (target - target.mean()).square().sum())


def accuracy(states: Float[Tensor, "b n d"], classes: Int[Tensor, "b n"]) -> float:
    """Return the accuracy of a probe on new texts."""
    guess, target = _probed(states, F.one_hot(classes).double())
    return float((guess.argmax(-1) == target.argmax(-1)).double().mean())


Targets: TypeAlias = Float64[Tensor, "b n k"]


def _probed(states: Float[Tensor, "b n d"], targets: Targets) -> tuple[Targets, Targets]:
    """Fit a probe to two thirds of the texts; return predictions and targets of the others."""
    fitted = 2 * len(states) // 3
    x, y = states.double(), targets
    probe = fit_probe(x[:fitted].flatten(0, 1), y[:fitted].flatten(0, 1))
    return probe(x[fitted:]), y[fitted:]


def _folded(run: Run, ids: Int[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """Return the classes of the characters in lower case."""
    texts = [run.tokenizer.decode(row).lower() for row in ids.tolist()]
    known = sorted(set().union(*texts))
    return torch.tensor([[known.index(character) for character in text] for text in texts])


def judged(measured: Mapping[str, Measured]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    attention, none = measured[ATTENTION], measured[NONE]
    for side in (ENCODER, DECODER):
        yield at_least(f"attention, {side}: position, R²", attention.read[side, "position"], 0.9)
        yield at_least(f"attention, {side}: task", attention.read[side, "task"], 0.9)
    character = attention.read[ENCODER, "character"]
    yield at_least("attention, encoder: character just read", character, 0.95)
    ahead = none.read[DECODER, "character"] - attention.read[DECODER, "character"]
    yield at_least("decoder: next character, no attention minus attention", ahead, 0.05)
    for half, more, less in (
        ("first", NONE, ATTENTION),
        ("last", ATTENTION, NONE),
    ):
        gain = accuracy_of_half(measured[more], half) - accuracy_of_half(measured[less], half)
        yield at_least(f"last state: {half} half of the text, {more} minus {less}", gain, 0.02)


def accuracy_of_half(one: Measured, half: str) -> float:
    """Return the accuracy for the characters of a half of the text on the last state."""
    middle = len(one.last) // 2
    part = one.last[:middle] if half == "first" else one.last[middle:]
    return sum(part) / len(part)
