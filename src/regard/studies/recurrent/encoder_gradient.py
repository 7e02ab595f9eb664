"""Paths of the gradient to the encoder, and what changes at inference."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models.recurrent import RecurrentStates
from regard.models.seq2seq import EncoderDecoderStates
from regard.runs.run import Run
from regard.studies.figure import chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import ATTENTION, NONE, TOKEN
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.examples import Example

COUNT = 64
"""Number of texts."""


@study()
def encoder_gradient(
    cell: casing.Cell = "vanilla",
    width: casing.Width = 64,
    longest: casing.Longest = 24,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How does the gradient reach the encoder, and what changes at inference?

    Without attention, all gradient reaches the encoder through its last state, and little of it
    reaches the first characters. With attention, there is a path to each state. At inference the
    weights of both sides are fixed; source, last state and output change.

    $$ \frac{\partial J}{\partial h_j} = \sum_t \frac{\partial J_t}{\partial c_t} \frac{\partial
    c_t}{\partial h_j} + \frac{\partial J}{\partial h_n} \prod_{k=j+1}^{n} \frac{\partial
    h_k}{\partial h_{k-1}} $$

    The gradient is measured at each character of an untrained network, also with the path through
    the last state cut; then the weights before and after the model answers, and its states and
    outputs for two texts.

    Figure. Norm of the gradient at each character in an untrained network. Lines: all paths;
    dashes: without the path through the last state. Without attention it falls to almost nothing
    from the last character to the first; with attention it is similar at all of them.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, seed=seed)
    runs = {NONE: setup.plan().run, ATTENTION: setup.with_attention().plan().run}
    texts = setup.texts(longest, COUNT)
    measured = {name: measure(run, casing.Rows.of(run, texts)) for name, run in runs.items()}
    yield from judged(measured)
    yield from at_inference(runs[NONE], texts)
    none, attention = measured[NONE], measured[ATTENTION]
    places = range(1, len(none.whole) + 1)
    yield chart(
        series(places, none.whole, NONE, color=0),
        series(places, attention.whole, ATTENTION, color=1),
        series(places, attention.cut, f"{ATTENTION}, last state cut", "dashes", color=1),
        x="character of the text",
        y="norm of the gradient",
        y_scale="log",
    )


class Measured(NamedTuple):
    """Gradients of one network."""

    whole: Float[Tensor, " characters"]
    """Norm of the gradient at each character read, averaged over texts."""
    cut: Float[Tensor, " characters"]
    """The same without the path through the last state."""

    @property
    def first_to_last(self) -> float:
        """Ratio of the gradients at the first and at the last character."""
        return float(self.whole[0] / self.whole[-1])


def measure(run: Run, rows: casing.Rows) -> Measured:
    """Measure the gradients with and without the path through the last state."""
    characters, memory = encoded(run, rows)
    cut = RecurrentStates([x.detach() for x in memory.decoder.layers], memory.decoder.length)
    memories = (memory, EncoderDecoderStates(cut, memory.source))
    return Measured(
        *(gradient(casing.loss(run, rows, one), characters)[TOKEN:] for one in memories)
    )


def encoded(run: Run, rows: casing.Rows) -> tuple[Float[Tensor, "b n d"], EncoderDecoderStates]:
    """Return the embeddings of the source, and what the decoder receives from the encoder."""
    body, seen = casing.body_of(run), list[Tensor]()
    handle = body.encoder.embedding.register_forward_hook(lambda *call: seen.append(call[-1]))
    memory = body.encode(rows.source, rows.lengths)
    handle.remove()
    return seen[0], memory


def gradient(loss: Float[Tensor, ""], x: Float[Tensor, "b n d"]) -> Float[Tensor, " n"]:
    """Return the norm of the gradient at each place, averaged over rows; 0 if there is no path."""
    (found,) = torch.autograd.grad(loss, x, retain_graph=True, materialize_grads=True)
    lengths: Tensor = found.norm(dim=-1)
    return lengths.mean(0)


@torch.inference_mode()
def at_inference(run: Run, texts: Sequence[Example]) -> Measurements:
    """Yield the change of the weights by answering, and of the rest by another text."""
    body, rows = casing.body_of(run), casing.Rows.of(run, texts)
    for name, side in (("encoder", body.encoder), ("decoder", body.decoder)):
        before = [weights.clone() for weights in side.parameters()]
        casing.answers(run, texts)
        pairs = zip(side.parameters(), before, strict=True)
        moved = sum(float((now - then).abs().sum()) for now, then in pairs)
        yield equal(f"change of the {name}'s weights by inference", moved, 0)
    memory = body.encode(rows.source, rows.lengths)
    output, _ = body.extend(rows.ids, memory)
    parts = {"source": rows.source, "last state": memory.decoder.layers[0][0], "output": output}
    for name, values in parts.items():
        change = (values - values.roll(1, 0)).abs().max()
        yield at_least(f"change of the {name} by another text", change, 1e-3)


def judged(measured: dict[str, Measured]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    none, attention = measured[NONE], measured[ATTENTION]
    yield at_most(f"{NONE}: gradient, first / last character", none.first_to_last, 1e-3)
    yield at_least(f"{ATTENTION}: gradient, first / last character", attention.first_to_last, 0.1)
    yield equal(f"{NONE}, last state cut: sum of gradients", none.cut.sum(), 0)
    share = attention.cut.sum() / attention.whole.sum()
    yield at_least(f"{ATTENTION}, last state cut: remaining share of the gradient", share, 0.1)
