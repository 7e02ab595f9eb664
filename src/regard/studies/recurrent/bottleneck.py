"""What one state can hold, and how attention goes around it."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.drawing import COLORS, heat_map, panels
from regard.explorer.look import look
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    named,
    table,
)
from regard.studies.recurrent.casing import (
    Longest,
    Seed,
    Setup,
    Steps,
    Width,
    answers,
    attention_map,
    right_case,
    right_texts,
)
from regard.studies.study import study
from regard.tasks.casing import Place

NEAR = 1
"""How far from the diagonal a weight may lie."""


@study(
    asked=["eecs182-disc8 1.b", "eecs182-disc8 1.c", "eecs182-disc8 1.d"],
    question="What does the last state of an encoder contain, and what changes with attention?",
    claim="Without attention, accuracy falls with the length of the text, earlier for smaller"
    " states; with it, texts of all lengths are right, wherever the task token is, and "
    "the weights lie along a diagonal.",
    formula=r"c_t = \sum_j \alpha_{tj} h_j, \quad \alpha_t = \mathrm{softmax}_j"
    r"\left(s_t^\top W h_j\right), \quad \tilde s_t = \tanh(W_c [c_t; s_t])",
    trains=True,
)
def bottleneck(
    width: Width = 128, longest: Longest = 16, steps: Steps = 800, seed: Seed = 0
) -> Evidence:
    """The task is to write a text in upper or in lower case: the encoder reads it character by
    character, the decoder writes it. Without attention all that the decoder gets is the encoder's
    last state, a few numbers for the whole text and for the task. A short text fits, a long one
    doesn't, and a wider state holds a little more.

    With attention the last state needs to hold nothing but the task. Each step of the decoder asks
    for the character that it is about to write; the encoder's states tell where they stand, the
    decoder's count how far it has come. The map of the weights is a diagonal, as far from the main
    one as the task token is long.

    Where the token stands at the beginning, its task has to be carried through the whole text. That
    is one bit, and gates keep it: what is lost of a long text is its characters, not its case.
    """

    def setup(attention: str, share: int = 1, place: Place = "first") -> Setup:
        return Setup(
            attention=attention, width=width // share, place=place,
            longest=longest, steps=steps, seed=seed,
        )  # fmt: skip

    setups = {
        "attention": setup("softmax"),
        "attention, token last": setup("softmax", place="last"),
        "none": setup("none"),
        "none, half as wide": setup("none", 2),
        "none, a quarter as wide": setup("none", 4),
        "none, token last": setup("none", place="last"),
    }
    measured = {name: measure(one) for name, one in setups.items()}
    attending, shown = setups["attention"].run(), setups["attention"].texts(longest)[:1]
    return Evidence(
        numbers=tuple(judged(measured)),
        figure=_drawn(measured, attention_map(attending, shown)[0]),
        table=table(
            ["right in every character", *map(str, setups["none"].lengths), "right case"],
            [(name, *one.right.values(), one.case) for name, one in measured.items()],
        ),
        explorer_view=look(named(attending, "with attention"), shown[0].text, shown[0].answer).data,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Of one network."""

    right: dict[int, float]
    """The share of texts that are right in every character, by length."""
    case: float
    """The share of letters of the longest texts that are in the right case."""
    near: float | None = None
    """The weight near the diagonal, where there is attention."""


def measure(setup: Setup) -> Measured:
    """A network on new texts."""
    run, right = setup.run(), {}
    for length in setup.lengths:
        asked = setup.texts(length)
        given = answers(run, asked)
        right[length] = right_texts(given, asked)
    near = None if setup.attention == "none" else near_diagonal(attention_map(run, asked), setup)
    return Measured(right=right, case=right_case(given, asked), near=near)


def near_diagonal(weights: Float[Tensor, "b n n_source"], setup: Setup) -> float:
    """The weight that a written character gives to the one it comes from, and its neighbors."""
    written, read = torch.arange(weights.shape[1] - 1), torch.arange(weights.shape[2])
    near = (read - written[:, None] - setup.shift).abs() <= NEAR
    return float((weights[:, :-1] * near).sum(-1).mean())


def judged(measured: dict[str, Measured]) -> Iterable[Measurement]:
    """What the claim wants of them."""
    for name in ("attention", "attention, token last"):
        one = measured[name]
        yield at_least(f"{name}: right texts, worst length", min(one.right.values()), 0.9)
        if one.near is not None:
            yield at_least(f"{name}: weight near the diagonal", one.near, 0.7)
    none = list(measured["none"].right.values())
    yield at_least("none: right texts, shortest less longest", none[0] - none[-1], 0.3)
    yield at_most("none: right texts, longest", none[-1], 0.5)
    means = [
        _mean(measured[name].right)
        for name in ("none", "none, half as wide", "none, a quarter as wide")
    ]
    yield at_least("none: right texts, whole width less half", means[0] - means[1], 0.02)
    yield at_least("none: right texts, half less a quarter", means[1] - means[2], 0.02)
    for name in ("none", "none, token last"):
        yield at_least(f"{name}: letters in the right case, longest", measured[name].case, 0.95)


def _mean(right: dict[int, float]) -> float:
    return sum(right.values()) / len(right)


def _drawn(measured: dict[str, Measured], weights: Float[Tensor, "n n_source"]) -> Drawing:
    with panels(2, height=3.6, width=8.0) as (figure, (left, right)):
        for i, (name, one) in enumerate(measured.items()):
            style = "--" if name.startswith("none") else "-"
            places, shares = list(one.right), list(one.right.values())
            left.plot(places, shares, style, marker="o", markersize=4, color=COLORS[i], label=name)
        left.set(xlabel="characters", ylabel="texts right in every character", ylim=(-0.03, 1.05))
        left.legend(fontsize=7)
        heat_map(right, weights.numpy())
        right.set(xlabel="characters read", ylabel="characters written")
        return drawing(
            figure,
            "Left: accuracy against length. With attention it is 1 at all lengths; without, it "
            "falls from the shortest texts on, the sooner the narrower the state. Right: the "
            "weights of the attention for one text, which lie along a diagonal that begins behind "
            "the task token.",
            name="bottleneck",
        )
