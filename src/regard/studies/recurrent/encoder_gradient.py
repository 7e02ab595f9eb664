"""The ways by which a gradient reaches the encoder, and what changes at inference."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.drawing import COLORS, panels
from regard.models.recurrent import RecurrentStates
from regard.models.seq2seq import EncoderDecoderStates
from regard.runs.run import Run
from regard.studies.finding import Drawing, Evidence, Measurement, at_least, at_most, drawing, equal
from regard.studies.recurrent.casing import (
    TOKEN,
    Longest,
    Rows,
    Seed,
    Setup,
    Width,
    answers,
    body_of,
)
from regard.studies.study import study
from regard.tasks.examples import Example

COUNT = 64
"""Texts."""


@study(
    asked=["eecs182-disc8 1.a.i", "eecs182-disc8 1.a.ii"],
    question="How does the gradient reach the encoder, and what changes at inference?",
    claim="Without attention, all gradient reaches the encoder through its last state, and "
    "little of it the first characters; with attention, there is a path to each state. "
    "At inference the weights are fixed, and only activations change.",
    formula=r"\frac{\partial J}{\partial h_j} = \sum_t \frac{\partial J_t}{\partial c_t} "
    r"\frac{\partial c_t}{\partial h_j} + \frac{\partial J}{\partial h_n} "
    r"\prod_{k=j+1}^{n} \frac{\partial h_k}{\partial h_{k-1}}",
)
def encoder_gradient(width: Width = 128, longest: Longest = 24, seed: Seed = 0) -> Evidence:
    """The loss is of what the decoder writes. To the encoder's weights it leads back through what
    the decoder got from there: without attention, the last state alone. If that way is cut, the
    gradient is exactly 0. From the last state on it goes back step by step, and a new network
    forgets about half with each: what stands at the beginning of a long text gets next to nothing,
    so that it is learned last.

    Attention leads straight from each loss to each state. The first character gets as much as the
    last, and where the way through the last state is cut, training would still be possible.

    Learning is all that changes weights. When the model answers, another text gives other states
    and another output, by the same weights.
    """
    runs = {
        kind: Setup(attention=kind, width=width, longest=longest, seed=seed).plan().run
        for kind in ("none", "softmax")
    }
    texts = Setup(longest=longest, seed=seed).texts(longest, COUNT)
    measured = {kind: measure(run, Rows.of(run, texts)) for kind, run in runs.items()}
    run = runs["none"]
    before = {name: weights.clone() for name, weights in run.model.state_dict().items()}
    answers(run, texts)
    moved = sum(
        float((weights - before[name]).abs().sum())
        for name, weights in run.model.state_dict().items()
    )
    return Evidence(
        numbers=(
            *judged(measured),
            equal("change of the weights by answering", moved, 0),
            at_least("change of the last state by another text", states_apart(run, texts), 1e-3),
        ),
        figure=_drawn(measured),
    )


@dataclass(frozen=True)
class Measured:
    """Of one network."""

    whole: Float[Tensor, " characters"]
    """The gradient's length at each character that is read, in the mean over texts."""
    cut: Float[Tensor, " characters"]
    """The same where no gradient goes through the last state."""

    @property
    def first_to_last(self) -> float:
        """The gradient at the first character of the text, by that at the last."""
        return float(self.whole[0] / self.whole[-1])


def measure(run: Run, rows: Rows) -> Measured:
    """A network, whole and with the way through the last state cut."""
    characters, memory = encoded(run, rows)
    cut = RecurrentStates(memory.decoder.layers.detach(), memory.decoder.length)
    return Measured(
        *(
            gradient(loss(run, rows, one), characters)[TOKEN:]
            for one in (memory, EncoderDecoderStates(cut, memory.source))
        )
    )


def encoded(run: Run, rows: Rows) -> tuple[Float[Tensor, "b n d"], EncoderDecoderStates]:
    """The embeddings of the characters that are read, and what the decoder gets to know of them."""
    body, seen = body_of(run), list[Tensor]()
    handle = body.encoder.embedding.register_forward_hook(lambda *call: seen.append(call[-1]))
    memory = body.encode(rows.source, rows.lengths)
    handle.remove()
    return seen[0], memory


def loss(run: Run, rows: Rows, memory: EncoderDecoderStates) -> Float[Tensor, ""]:
    """Of the right answers."""
    hidden, _ = body_of(run).extend(rows.ids, memory)
    return F.cross_entropy(run.model.head(hidden).flatten(0, 1), rows.labels.flatten())


def gradient(of: Float[Tensor, ""], x: Float[Tensor, "b n d"]) -> Float[Tensor, " n"]:
    """Its length at each place, in the mean over rows; 0 where no way leads."""
    (found,) = torch.autograd.grad(
        of, x, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    lengths: Tensor = found.norm(dim=-1)
    return lengths.mean(0)


@torch.inference_mode()
def states_apart(run: Run, texts: Sequence[Example]) -> float:
    """The largest difference between the encoder's last states of texts and of the next ones."""
    rows = Rows.of(run, texts)
    last = body_of(run).encode(rows.source, rows.lengths).decoder.layers
    return float((last - last.roll(1, 2)).abs().max())


def judged(measured: dict[str, Measured]) -> Iterable[Measurement]:
    """What the claim wants of them."""
    none, attention = measured["none"], measured["softmax"]
    yield at_most("no attention: gradient, first character by last", none.first_to_last, 1e-3)
    yield at_least("attention: gradient, first character by last", attention.first_to_last, 0.1)
    yield equal("no attention, last state cut off: gradient, sum", none.cut.sum(), 0)
    share = attention.cut.sum() / attention.whole.sum()
    yield at_least("attention, last state cut off: share that is left", share, 0.1)


def _drawn(measured: dict[str, Measured]) -> Drawing:
    with panels() as (figure, (axes,)):
        for i, (kind, one) in enumerate(measured.items()):
            name = "no attention" if kind == "none" else "attention"
            places = range(1, len(one.whole) + 1)
            axes.plot(places, one.whole, color=COLORS[i], label=name)
            if kind != "none":
                label = f"{name}, last state cut off"
                axes.plot(places, one.cut, "--", color=COLORS[i], label=label)
        axes.set(yscale="log", xlabel="character of the text", ylabel="length of the gradient")
        axes.legend()
        return drawing(
            figure,
            "The gradient that reaches each character in a new network. Without attention it falls "
            "to almost nothing from the last character back to the first; with attention it is "
            "much the same at all of them, also where the way through the last state is cut.",
            name="encoder-gradient",
        )
