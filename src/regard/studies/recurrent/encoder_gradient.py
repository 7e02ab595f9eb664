"""The ways by which a gradient reaches the encoder, and what changes at inference."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.recurrent import RecurrentStates
from regard.models.seq2seq import EncoderDecoderStates
from regard.runs.run import Run
from regard.studies.figure import one_chart, series
from regard.studies.finding import EvidenceParts, Measurement, at_least, at_most, equal
from regard.studies.recurrent.casing import (
    ATTENTION,
    NONE,
    TOKEN,
    Cell,
    Longest,
    Rows,
    Setup,
    Width,
    answers,
    body_of,
    loss,
)
from regard.studies.study import Seed, study
from regard.tasks.examples import Example

COUNT = 64
"""Texts."""


@study()
def encoder_gradient(
    cell: Cell = "vanilla", width: Width = 64, longest: Longest = 24, seed: Seed = 0
) -> EvidenceParts:
    r"""How does the gradient reach the encoder, and what changes at inference?

    Without attention, all gradient reaches the encoder through its last state, and little of it the
    first characters; with attention, there is a path to each state. At inference the weights of
    both sides are fixed; source, last state and output change.

    $$ \frac{\partial J}{\partial h_j} = \sum_t \frac{\partial J_t}{\partial c_t} \frac{\partial
    c_t}{\partial h_j} + \frac{\partial J}{\partial h_n} \prod_{k=j+1}^{n} \frac{\partial
    h_k}{\partial h_{k-1}} $$

    The loss is of what the decoder writes. The decoder's weights get their gradient from there
    at each step. To the encoder's weights it leads back through what the decoder got from there:
    without attention, the last state alone. If that way is cut, the gradient is exactly 0. From the
    last state on it goes back step by step, and a new network forgets about half with each: what
    stands at the beginning of a long text gets next to nothing, so that it is learned last.

    Attention leads straight from each loss to each state. The first character gets as much as the
    last, and where the way through the last state is cut, training would still be possible.

    Learning is all that changes weights. When the model answers, another text gives other states
    and another output, by the same weights.

    Figure. The gradient that reaches each character in a new network; lines: whole, dashes: without
    the way through the last state. Without attention it falls to almost nothing from the last
    character back to the first; with attention it is much the same at all of them.
    """
    setup = Setup(cell=cell, width=width, longest=longest, seed=seed)
    runs = {NONE: setup.plan().run, ATTENTION: setup.with_attention().plan().run}
    texts = setup.texts(longest, COUNT)
    measured = {name: measure(run, Rows.of(run, texts)) for name, run in runs.items()}
    yield from judged(measured)
    yield from at_inference(runs[NONE], texts)
    none, attention = measured[NONE], measured[ATTENTION]
    places = range(1, len(none.whole) + 1)
    yield one_chart(
        series(places, none.whole, NONE, color=0),
        series(places, attention.whole, ATTENTION, color=1),
        series(places, attention.cut, f"{ATTENTION}, last state cut off", "dashes", color=1),
        x="character of the text",
        y="length of the gradient",
        y_scale="log",
    )


class Measured(NamedTuple):
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
    memories = (memory, EncoderDecoderStates(cut, memory.source))
    return Measured(*(gradient(loss(run, rows, one), characters)[TOKEN:] for one in memories))


def encoded(run: Run, rows: Rows) -> tuple[Float[Tensor, "b n d"], EncoderDecoderStates]:
    """The embeddings of the characters that are read, and what the decoder gets to know of them."""
    body, seen = body_of(run), list[Tensor]()
    handle = body.encoder.embedding.register_forward_hook(lambda *call: seen.append(call[-1]))
    memory = body.encode(rows.source, rows.lengths)
    handle.remove()
    return seen[0], memory


def gradient(of: Float[Tensor, ""], x: Float[Tensor, "b n d"]) -> Float[Tensor, " n"]:
    """Its length at each place, in the mean over rows; 0 where no way leads."""
    (found,) = torch.autograd.grad(of, x, retain_graph=True, materialize_grads=True)
    lengths: Tensor = found.norm(dim=-1)
    return lengths.mean(0)


@torch.inference_mode()
def at_inference(run: Run, texts: Sequence[Example]) -> Iterable[Measurement]:
    """What answering changes of the weights of both sides, and another text of the rest."""
    body, rows = body_of(run), Rows.of(run, texts)
    for name, side in (("encoder", body.encoder), ("decoder", body.decoder)):
        before = [weights.clone() for weights in side.parameters()]
        answers(run, texts)
        pairs = zip(side.parameters(), before, strict=True)
        moved = sum(float((now - then).abs().sum()) for now, then in pairs)
        yield equal(f"change of the {name}'s weights by answering", moved, 0)
    memory = body.encode(rows.source, rows.lengths)
    output, _ = body.extend(rows.ids, memory)
    parts = {"source": rows.source, "last state": memory.decoder.layers[0, 0], "output": output}
    for name, values in parts.items():
        change = (values - values.roll(1, 0)).abs().max()
        yield at_least(f"change of the {name} by another text", change, 1e-3)


def judged(measured: dict[str, Measured]) -> Iterable[Measurement]:
    """What the claim requires of them."""
    none, attention = measured[NONE], measured[ATTENTION]
    yield at_most(f"{NONE}: gradient, first character by last", none.first_to_last, 1e-3)
    yield at_least(f"{ATTENTION}: gradient, first character by last", attention.first_to_last, 0.1)
    yield equal(f"{NONE}, last state cut off: gradient, sum", none.cut.sum(), 0)
    share = attention.cut.sum() / attention.whole.sum()
    yield at_least(f"{ATTENTION}, last state cut off: share that is left", share, 0.1)
