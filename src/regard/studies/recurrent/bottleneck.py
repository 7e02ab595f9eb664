"""What one state holds of a text after how much training, and how attention goes around it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import Any, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from regard.explorer.look import look
from regard.runs.run import Run
from regard.studies.figure import Style, chart, figure, heat_map, series
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    informational,
    named,
    table,
)
from regard.studies.recurrent.casing import (
    ATTENTION,
    CHECKPOINTS,
    NONE,
    Cell,
    CellKind,
    Longest,
    Rows,
    Setup,
    Steps,
    Width,
    answers,
    attention_map,
    body_of,
    right_case,
    right_texts,
)
from regard.studies.study import Seed, study
from regard.tasks.examples import Example

NEAR = 1
"""How far from the diagonal a weight may lie."""
ATTENTION_LAST, LAST = f"{ATTENTION}, token last", f"{NONE}, token last"
HALF = f"{NONE}, half as wide"


@study(trains=True)
def bottleneck(
    cell: Cell = "vanilla",
    width: Width = 64,
    longest: Longest = 12,
    steps: Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What does the last state of an encoder contain, and what changes with attention?

    Without attention, accuracy falls with the length of the text, is higher with wider states and
    with gated cells, and still rises in the second half of training; the task is kept wherever its
    token is. With attention, texts of all lengths are right after a quarter of the steps, and the
    weights lie along a diagonal.

    $$ e_{tj} = q_t^\top k_j / \sqrt{d}, \quad \alpha_t = \mathrm{softmax}_j(e_{tj}), \quad c_t =
    \sum_j \alpha_{tj} v_j, \quad \tilde s_t = \tanh(W_c [c_t; s_t]) $$

    The task is to write a text in upper or in lower case: the encoder reads it character by
    character, the decoder writes it. Without attention all that the decoder gets is the encoder's
    last state, for the whole text and for the task. The states are those of vanilla cells, as in
    the course; gated ones are measured beside them.

    The state is large enough: 64 numbers have 2048 bits, and 12 letters of either case less than
    70. What is missing is a way to write the text into it and to read it, and that is learned,
    short texts first. So the same network is measured at several times of its training. Accuracy
    after half of the steps says little about what the state can hold, and so does that at the end,
    for it still rises. Wider states and gated cells learn faster.

    With attention, each step of the decoder compares a query with a key of each encoder state
    (score), makes weights of the scores (normalization), adds up values by them (context), and
    writes from that and its own state (readout). The last state needs to hold nothing but the task.
    The encoder's states tell where they stand, the decoder's count how far it has come. The map of
    the weights is a diagonal, as far from the main one as the task token is long.

    Figure. Share of texts right in every character, against training time in the mean over lengths,
    and against length after the last step; lines: with attention, dashes: without. With attention
    it is 1 at all lengths after a quarter of the steps. Without, it still rises when training ends,
    and falls with length. The map shows the weights of the attention for one text: a diagonal that
    begins behind the task token.
    """
    setup = Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    setups = networks(setup)
    measured = {name: measure(one) for name, one in setups.items()}
    attending, shown = setups[ATTENTION].run(), setup.texts(longest)
    weights = attention_map(attending, shown[:1])[0]
    yield from judged(measured, cell)
    yield at_most("attention by hand, output off by", off_by_hand(attending, shown), 1e-4)
    yield informational("bits of the longest text, at most", longest * log2(2 * 26 + 1))
    yield informational("bits of the state", 32 * width)
    shares = [f"right, {n} characters" for n in setup.lengths]
    columns = ["network", "cell", "task token", "width", "steps", *shares, "right case"]
    rows = [
        (
            *(ATTENTION if one.attention else NONE, one.cell, one.place, one.width),
            *(found.steps[i], *found.right[i], found.case[i]),
        )
        for one, found in zip(setups.values(), measured.values(), strict=True)
        for i in range(len(found.steps))[:: -CHECKPOINTS // 2][::-1]  # half-way and at the end
    ]
    yield table(columns, rows)
    training, by_length = [], []
    for name, one in measured.items():
        if name != ATTENTION_LAST and not name.startswith(f"{LAST},"):
            style: Style = "dashes" if name.startswith(NONE) else "line"
            training.append(series(one.steps, one.means, name, style))
            by_length.append(series(setup.lengths, one.right[-1], name, style))
    axes: dict[str, Any] = {"y": "share of right texts", "y_limits": (-0.03, 1.05)}
    yield figure(
        chart(*training, x="steps of training", **axes),
        chart(*by_length, x="characters", **axes),
        heat_map(weights, x="characters read", y="characters written", unit="weight"),
    )
    yield look(named(attending, "with attention"), shown[0].text, shown[0].answer).data


def networks(setup: Setup) -> dict[str, Setup]:
    """Return what is trained, by name; without attention with the other kinds of cell, too."""
    last = replace(setup, place="last")
    made = {
        ATTENTION: setup.with_attention(),
        ATTENTION_LAST: last.with_attention(),
        NONE: setup,
        LAST: last,
        HALF: replace(setup, width=setup.width // 2),
    }
    for kind in get_args(CellKind):
        if kind != setup.cell:
            made[f"{NONE}, {kind}"] = replace(setup, cell=kind)
            made[f"{LAST}, {kind}"] = replace(last, cell=kind)
    return made


class Measured(NamedTuple):
    """Of one network, at each checkpoint."""

    steps: list[int]
    right: list[list[float]]
    """The share of texts of each length that are right in every character."""
    case: list[float]
    """The share of letters of the longest texts that are in the right case."""
    near: float | None = None
    """The weight near the diagonal after the last step, where there is attention."""

    @property
    def means(self) -> list[float]:
        """The share of right texts, in the mean over lengths."""
        return [sum(shares) / len(shares) for shares in self.right]


def measure(setup: Setup) -> Measured:
    """A network on new texts."""
    asked, runs = [setup.texts(length) for length in setup.lengths], setup.runs()
    given = [[answers(run, texts) for texts in asked] for run in runs.values()]
    last = attention_map(runs[setup.steps], asked[-1]) if setup.attention else None
    return Measured(
        steps=list(runs),
        right=[[right_texts(*pair) for pair in zip(one, asked, strict=True)] for one in given],
        case=[right_case(one[-1], asked[-1]) for one in given],
        near=None if last is None else near_diagonal(last, setup),
    )


def near_diagonal(weights: Float[Tensor, "b n n_source"], setup: Setup) -> float:
    """The weight that a written character gives to the one it comes from, and its neighbors."""
    written, read = torch.arange(weights.shape[1] - 1), torch.arange(weights.shape[2])
    near = (read - written[:, None] - setup.shift).abs() <= NEAR
    return float((weights[:, :-1] * near).sum(-1).mean())


@torch.inference_mode()
def off_by_hand(run: Run, questions: Sequence[Example]) -> float:
    """How far the decoder's output is off score, normalization, context and readout by hand."""
    rows, body = Rows.of(run, questions), body_of(run)
    encoded, _ = body.encoder.encode(rows.source, rows.lengths)
    memory = body.encode(rows.source, rows.lengths)
    state, _ = body.decoder.extend(rows.ids, memory.decoder)
    assert body.attention is not None
    q, k = body.attention.q_proj(state), body.attention.k_proj(encoded)
    scores = q @ k.mT / k.shape[-1] ** 0.5
    context = scores.softmax(-1) @ body.attention.v_proj(encoded)
    readout = body.attention.o_proj(torch.cat([context, state], -1)).tanh()
    return float((readout - body.extend(rows.ids, memory)[0]).abs().max())


def judged(measured: Mapping[str, Measured], cell: CellKind) -> Iterable[Measurement]:
    """What the claim requires of them."""
    for name in (ATTENTION, ATTENTION_LAST):
        one = measured[name]
        yield at_least(f"{name}: right texts, worst length", min(one.right[-1]), 0.9)
        if one.near is not None:
            yield at_least(f"{name}: weight near the diagonal", one.near, 0.7)
    none = measured[NONE]
    fall = none.right[-1][0] - none.right[-1][-1]
    yield at_least(f"{NONE}: right texts, shortest less longest", fall, 0.1)
    later = none.means[-1] - none.means[(len(none.means) - 1) // 2]
    yield at_least(f"{NONE}: right texts, at the end less half-way", later, 0.02)
    wider = none.means[-1] - measured[HALF].means[-1]
    yield at_least(f"{NONE}: right texts, whole width less half", wider, 0.02)
    mean = {
        kind: measured[NONE if kind == cell else f"{NONE}, {kind}"].means[-1]
        for kind in get_args(CellKind)
    }
    for kind in ("gru", "lstm"):
        gain = mean[kind] - mean["vanilla"]
        yield at_least(f"{NONE}: right texts, {kind} less vanilla", gain, 0.1)
    for name in (NONE, LAST):
        yield at_least(f"{name}: letters in the right case, longest", measured[name].case[-1], 0.95)
    sooner = none.means[-1] - measured[LAST].means[-1]
    yield informational(f"{NONE}: right texts, token first less last", sooner)
