"""Accuracy of recurrent encoder–decoders with and without attention, over training time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.figure import Chart, Style, chart, figure, heat_map, series
from regard.studies.finding import Measurements, at_least, at_most, named, table
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import ATTENTION, NONE
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.examples import Example

NEAR = 1
"""Largest distance from the diagonal at which a weight counts as near it."""
ATTENTION_LAST, LAST = f"{ATTENTION}, token last", f"{NONE}, token last"
HALF = f"{NONE}, half as wide"


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

    The task is to rewrite a text in upper or lower case, character by character. The cells are
    vanilla, as in the course; gated cells are measured as well. The same network is measured at
    several times of its training.

    Figure. Share of texts that are right in every character, against training steps (mean over
    lengths) and against length (after the last step). Lines: with attention; dashes: without. With
    attention the share is 1 at all lengths after a quarter of the steps. Without attention it is
    still rising when training ends, and it falls with length. The heat map shows the attention
    weights for one text: a diagonal that begins after the task token.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    setups = networks(setup)
    measured = {name: measure(one) for name, one in setups.items()}
    attending, shown = setups[ATTENTION].run(), setup.texts(longest)
    weights = casing.attention_map(attending, shown[:1])[0]
    yield from judged(measured, cell)
    yield at_most("attention by hand: error of the output", error_by_hand(attending, shown), 1e-4)
    shares = [f"right, {n} characters" for n in setups[NONE].lengths]
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


class Measured(NamedTuple):
    """Accuracy of one network at each checkpoint."""

    steps: list[int]
    right: list[list[float]]
    """Share of texts that are right in every character, for each length."""
    case: list[float]
    """Share of letters in the right case, in the longest texts."""
    near: float | None = None
    """Weight near the diagonal after the last step, if there is attention."""

    @property
    def means(self) -> list[float]:
        """Share of right texts, averaged over lengths."""
        return [sum(shares) / len(shares) for shares in self.right]


def measure(setup: casing.Setup) -> Measured:
    """Measure a network on new texts."""
    asked, runs = [setup.texts(length) for length in setup.lengths], setup.runs()
    given = [[casing.answers(run, texts) for texts in asked] for run in runs.values()]
    last = casing.attention_map(runs[setup.steps], asked[-1]) if setup.attention else None
    return Measured(
        steps=list(runs),
        right=[
            [casing.right_texts(*pair) for pair in zip(one, asked, strict=True)] for one in given
        ],
        case=[casing.right_case(one[-1], asked[-1]) for one in given],
        near=None if last is None else near_diagonal(last, setup),
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
    encoded, _ = body.encoder.encode(rows.source, rows.lengths)
    memory = body.encode(rows.source, rows.lengths)
    state, _ = body.decoder.extend(rows.ids, memory.decoder)
    assert body.attention is not None
    q, k = body.attention.q_proj(state), body.attention.k_proj(encoded)
    scores = q @ k.mT / k.shape[-1] ** 0.5
    context = scores.softmax(-1) @ body.attention.v_proj(encoded)
    readout = body.attention.o_proj(torch.cat([context, state], -1)).tanh()
    return float((readout - body.extend(rows.ids, memory)[0]).abs().max())


def _right_texts(measured: Mapping[str, Measured], lengths: Sequence[int]) -> tuple[Chart, Chart]:
    """Return the share of right texts by training steps, and at the end by length."""
    training, by_length = [], []
    for name, one in measured.items():
        if name != ATTENTION_LAST and not name.startswith(f"{LAST},"):
            style: Style = "dashes" if name.startswith(NONE) else "line"
            training.append(series(one.steps, one.means, name, style))
            by_length.append(series(lengths, one.right[-1], name, style))
    axes: dict[str, Any] = {"y": "share of right texts", "y_limits": (-0.03, 1.05)}
    return (
        chart(*training, x="training steps", **axes),
        chart(*by_length, x="characters", **axes),
    )


def judged(measured: Mapping[str, Measured], cell: casing.CellKind) -> Measurements:
    """Yield the measurements that the claim depends on."""
    for name in (ATTENTION, ATTENTION_LAST):
        one = measured[name]
        yield at_least(f"{name}: right texts, worst length", min(one.right[-1]), 0.9)
        if one.near is not None:
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
