"""The last state of a recurrent encoder: accuracy without attention and with it, and probes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from torch import Tensor

from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.figure import Chart, Line, Style, chart, figure, heat_map, series
from regard.studies.finding import Measurements, at_least, at_most, named, table
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import ATTENTION, NONE, TOKEN
from regard.studies.ridge import fit_probe
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import largest
from regard.tasks.examples import Example

NEAR = 1
"""Largest distance from the diagonal at which a weight counts as near it."""
ATTENTION_LAST, LAST = f"{ATTENTION}, token last", f"{NONE}, token last"
HALF, UNTRAINED = f"{NONE}, half as wide", "untrained"
ENCODER, DECODER = "encoder", "decoder"
TARGETS = ("position", "task", "character")
COUNT = 600
"""Number of texts; probes are fitted to two thirds of them, and tested on the others."""


@study(trains=True)
def bottleneck(
    cell: casing.Cell = "vanilla",
    width: casing.Width = 64,
    longest: casing.Longest = 12,
    steps: casing.Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What does the last state of an encoder contain, and what changes with attention?

    Without attention, accuracy decreases with the length of the text, increases with wider states
    and with gated cells, and still rises in the second half of training. The task is retained
    wherever its token is placed. With attention, at least 90 % of texts of each length are right
    after a quarter of the steps, and the weights lie along a diagonal.

    $$ e_{tj} = q_t^\top k_j / \sqrt{d}, \quad \alpha_t = \mathrm{softmax}_j(e_{tj}), \quad c_t =
    \sum_j \alpha_{tj} v_j, \quad \tilde s_t = \tanh(W_c [c_t; s_t]) $$

    The task is to rewrite a text in upper or lower case, character by character. Each network is
    measured at several times of its training.

    Figure. Share of texts that are right in every character, against training steps (mean over
    lengths) and against length (after the last step). Lines: with attention; dashes: without. With
    attention the share is 1 at all lengths after a quarter of the steps. Without attention it is
    still rising for most networks when training ends, and it falls with length. The heat map shows
    the attention weights for one text: a diagonal that begins after the task token.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    setups = networks(setup)
    measured = {name: rewriting(one) for name, one in setups.items()}
    attending, shown = setups[ATTENTION].run(), setup.texts(longest)
    yield from judged_rewriting(measured, cell)
    yield at_most("attention by hand: error of the output", error_by_hand(attending, shown), 1e-4)
    shares = [f"right, {n} characters" for n in setup.lengths]
    columns = ["network", "cell", "task token", "width", "steps", *shares, "right case"]
    rows = [
        (
            *(ATTENTION if one.attention else NONE, one.cell, one.place, one.width),
            *(found.steps[i], *found.right[i], found.case[i]),
        )
        for one, found in zip(setups.values(), measured.values(), strict=True)
        for i in range(len(found.steps))[:: -casing.CHECKPOINTS // 2][::-1]
    ]
    yield table(columns, rows)
    weights = casing.attention_map(attending, shown[:1])[0]
    yield figure(
        *_right_texts(measured, setup.lengths),
        heat_map(weights, x="characters read", y="characters written", unit="weight"),
    )
    yield look(named(attending, "with attention"), shown[0].text, shown[0].answer).data


def networks(setup: casing.Setup) -> dict[str, casing.Setup]:
    """Return the networks to train, by name; without attention, with all kinds of cells."""
    last = replace(setup, place="last")
    made = {
        ATTENTION: setup.with_attention(),
        ATTENTION_LAST: last.with_attention(),
        NONE: setup,
        LAST: last,
        HALF: replace(setup, width=setup.width // 2),
    }
    for kind in get_args(casing.CellKind):
        if kind != setup.cell:
            made[f"{NONE}, {kind}"] = replace(setup, cell=kind)
            made[f"{LAST}, {kind}"] = replace(last, cell=kind)
    return made


class Rewriting(NamedTuple):
    """Accuracy of one network at each checkpoint."""

    steps: list[int]
    right: list[list[float]]
    """Share of texts that are right in every character, for each length."""
    case: list[float]
    """Share of letters in the right case, in the longest texts."""
    near: float = nan
    """Weight near the diagonal after the last step; NaN without attention."""

    @property
    def means(self) -> list[float]:
        """Share of right texts, averaged over lengths."""
        return [sum(shares) / len(shares) for shares in self.right]


def rewriting(setup: casing.Setup) -> Rewriting:
    """Measure a network on new texts."""
    asked, runs = [setup.texts(length) for length in setup.lengths], setup.runs()
    given = [[casing.answers(run, texts) for texts in asked] for run in runs.values()]
    last = casing.attention_map(runs[setup.steps], asked[-1]) if setup.attention else None
    return Rewriting(
        steps=list(runs),
        right=[list(map(casing.right_texts, one, asked)) for one in given],
        case=[casing.right_case(one[-1], asked[-1]) for one in given],
        near=nan if last is None else near_diagonal(last, setup),
    )


def near_diagonal(weights: Float[Tensor, "b n n_source"], setup: casing.Setup) -> float:
    """Return the mean weight of each written character on its source and adjacent ones."""
    written, read = torch.arange(weights.shape[1] - 1), torch.arange(weights.shape[2])
    near = (read - written[:, None] - setup.shift).abs() <= NEAR
    return float((weights[:, :-1] * near).sum(-1).mean())


@torch.inference_mode()
def error_by_hand(run: Run, questions: Sequence[Example]) -> float:
    """Return the largest difference of the decoder's output from attention step by step."""
    rows, body = casing.Rows.of(run, questions), casing.body_of(run)
    encoded, state = states_of(run, rows)
    assert body.attention is not None
    q, k = body.attention.q_proj(state), body.attention.k_proj(encoded)
    weights = (q @ k.mT / k.shape[-1] ** 0.5).softmax(-1)
    context = weights @ body.attention.v_proj(encoded)
    readout = body.attention.o_proj(torch.cat([context, state], -1)).tanh()
    return largest(readout - body(rows.source, rows.lengths, rows.ids))


def _right_texts(measured: Mapping[str, Rewriting], lengths: Sequence[int]) -> tuple[Chart, Chart]:
    """Return the share of right texts by training steps, and at the end by length."""
    training, by_length = [], []
    for name, one in measured.items():
        if name != ATTENTION_LAST and not name.startswith(f"{LAST},"):
            style: Style = "dashes" if name.startswith(NONE) else "line"
            training.append(series(one.steps, one.means, name, style))
            by_length.append(series(lengths, one.right[-1], name, style))
    axes: dict[str, Any] = {"y": "share of right texts", "y_limits": (-0.03, 1.05)}
    over_time = chart(*training, x="training steps", **axes)
    return over_time, chart(*by_length, x="characters", **axes)


def judged_rewriting(measured: Mapping[str, Rewriting], cell: casing.CellKind) -> Measurements:
    """Yield the measurements that the claim depends on."""
    for name in (ATTENTION, ATTENTION_LAST):
        one = measured[name]
        yield at_least(f"{name}: right texts, worst length", min(one.right[-1]), 0.9)
        yield at_least(f"{name}: weight near the diagonal", one.near, 0.7)
    none = measured[NONE]
    fall = none.right[-1][0] - none.right[-1][-1]
    yield at_least(f"{NONE}: right texts, shortest minus longest", fall, 0.1)
    later = none.means[-1] - none.means[(len(none.means) - 1) // 2]
    yield at_least(f"{NONE}: right texts, end minus halfway", later, 0.02)
    wider = none.means[-1] - measured[HALF].means[-1]
    yield at_least(f"{NONE}: right texts, whole minus half width", wider, 0.02)
    mean = {
        kind: measured[NONE if kind == cell else f"{NONE}, {kind}"].means[-1]
        for kind in get_args(casing.CellKind)
    }
    for kind in ("gru", "lstm"):
        gain = mean[kind] - mean["vanilla"]
        yield at_least(f"{NONE}: right texts, {kind} minus vanilla", gain, 0.1)
    for name in (NONE, LAST):
        yield at_least(f"{name}: letters in the right case, longest", measured[name].case[-1], 0.95)


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
    network uses z, so an untrained network is probed as well.

    Figure. Accuracy of a probe for each character of a text on the encoder's last state. Dotted:
    the most frequent character as a guess. With attention, as before training, the last characters
    can be read and the first can't; without it, more of the first ones can and fewer of the last.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    attending = setup.with_attention()
    runs = {ATTENTION: attending.run(), NONE: setup.run(), UNTRAINED: attending.plan().run}
    texts = setup.texts(longest, COUNT)
    probed = {name: probe(run, casing.Rows.of(run, texts)) for name, run in runs.items()}
    yield from judged_probes(probed)
    rows = [
        (name, side, *(one.read[side, what] for what in TARGETS), one.guess)
        for name, one in probed.items()
        for side in (ENCODER, DECODER)
    ]
    yield table(["network", "states", "position, R²", "task", "character", "most frequent"], rows)
    lines = [series(range(1, len(one.last) + 1), one.last, name) for name, one in probed.items()]
    yield chart(
        *lines,
        Line(y=probed[ATTENTION].guess, label="guess"),
        x="character of the text",
        y="accuracy on the last state",
        y_limits=(0, 1.05),
    )


class Probed(NamedTuple):
    """Probes of one network."""

    read: dict[tuple[str, str], float]
    """R² for the position, accuracy for task and character, by side and target."""
    last: list[float]
    """Accuracy for each character of the text on the encoder's last state, in order."""
    guess: float
    """Share of the most frequent character."""


def probe(run: Run, rows: casing.Rows) -> Probed:
    """Apply all probes to a network.

    The target is the character just read for the encoder's states, and the next one for the
    decoder's.
    """
    encoder, decoder = states_of(run, rows)
    task = rows.source[:, 1:2]  # the letter of <U> or <L>
    texts = [run.tokenizer.decode(row).lower() for row in rows.source[:, TOKEN:].tolist()]
    characters = torch.tensor([run.tokenizer.encode(text) for text in texts])
    encoder, decoder = encoder[:, TOKEN:], decoder[:, : characters.shape[1]]
    position = torch.arange(characters.shape[1]).expand_as(characters)
    read = {}
    for side, states in ((ENCODER, encoder), (DECODER, decoder)):
        read[side, "position"] = r_squared(states, position)
        read[side, "task"] = accuracy(states, task.expand_as(characters))
        read[side, "character"] = accuracy(states, characters)
    last = [accuracy(encoder[:, -1:], one[:, None]) for one in characters.unbind(1)]
    return Probed(read, last, float(characters.flatten().bincount().max() / characters.numel()))


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
    return float(1 - (guess - target).square().mean() / target.var(correction=0))


def accuracy(states: Float[Tensor, "b n d"], classes: Int[Tensor, "b n"]) -> float:
    """Return the accuracy of a probe on new texts."""
    guess, target = _probed(states, F.one_hot(classes).double())
    return float((guess.argmax(-1) == target.argmax(-1)).double().mean())


Targets: TypeAlias = Float64[Tensor, "b n k"]


def _probed(states: Float[Tensor, "b n d"], targets: Targets) -> tuple[Targets, Targets]:
    """Fit a probe to two thirds of the texts; return predictions and targets of the others."""
    (x, new), (y, expected) = (
        each.double().tensor_split([2 * len(states) // 3]) for each in (states, targets)
    )
    return fit_probe(x.flatten(0, 1), y.flatten(0, 1))(new), expected


def judged_probes(probed: Mapping[str, Probed]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    attention, none = probed[ATTENTION], probed[NONE]
    for side in (ENCODER, DECODER):
        yield at_least(f"attention, {side}: position, R²", attention.read[side, "position"], 0.9)
        yield at_least(f"attention, {side}: task", attention.read[side, "task"], 0.9)
    character = attention.read[ENCODER, "character"]
    yield at_least("attention, encoder: character just read", character, 0.95)
    ahead = none.read[DECODER, "character"] - attention.read[DECODER, "character"]
    yield at_least("decoder: next character, no attention minus attention", ahead, 0.05)
    more, half = np.subtract(none.last, attention.last), len(none.last) // 2
    name = f"last state: first half of the text, {NONE} minus {ATTENTION}"
    yield at_least(name, more[:half].mean(), 0.02)
    name = f"last state: last half of the text, {ATTENTION} minus {NONE}"
    yield at_least(name, -more[half:].mean(), 0.02)
