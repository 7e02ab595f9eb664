"""Training of an encoder–decoder: the gradient of the encoder, and the roles of both sequences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.generate import generate_ids
from regard.models.builders import SequenceToSequence
from regard.models.recurrent import RecurrentStates
from regard.models.seq2seq import EncoderDecoderStates
from regard.runs.run import Run
from regard.studies.figure import chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal, informational
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import ATTENTION, NONE, TOKEN
from regard.studies.study import EvidenceParts, Seed, study
from regard.tasks.examples import Example

GRADIENT_TEXTS, TEXTS = 64, 400
"""Numbers of texts for which gradients and accuracy are measured."""


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

    The network is untrained. Its weights are compared before and after it answers, its states and
    outputs for two texts.

    Figure. Norm of the gradient at each character in an untrained network. Lines: all paths;
    dashes: without the path through the last state. Without attention it falls to almost nothing
    from the last character to the first; with attention it is similar at all of them.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, seed=seed)
    runs = {NONE: setup.plan().run, ATTENTION: setup.with_attention().plan().run}
    texts = setup.texts(longest, GRADIENT_TEXTS)
    measured = {name: gradients(run, casing.Rows.of(run, texts)) for name, run in runs.items()}
    yield from judged_gradients(measured)
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


class Gradients(NamedTuple):
    """Norm of the gradient of one network at each character read, averaged over texts."""

    whole: Float[Tensor, " characters"]
    cut: Float[Tensor, " characters"]
    """Without the path through the last state."""


def gradients(run: Run, rows: casing.Rows) -> Gradients:
    """Measure the gradients with and without the path through the last state."""
    characters, memory = encoded(run, rows)
    cut = RecurrentStates([x.detach() for x in memory.decoder.layers], memory.decoder.length)
    memories = (memory, EncoderDecoderStates(cut, memory.source))
    losses = (casing.loss(run, rows, one) for one in memories)
    return Gradients(*(gradient(loss, characters)[TOKEN:] for loss in losses))


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


def judged_gradients(measured: Mapping[str, Gradients]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    first_to_last = {name: one.whole[0] / one.whole[-1] for name, one in measured.items()}
    yield at_most(f"{NONE}: gradient, first / last character", first_to_last[NONE], 1e-3)
    yield at_least(f"{ATTENTION}: gradient, first / last character", first_to_last[ATTENTION], 0.1)
    yield equal(f"{NONE}, last state cut: sum of gradients", measured[NONE].cut.sum(), 0)
    share = measured[ATTENTION].cut.sum() / measured[ATTENTION].whole.sum()
    yield at_least(f"{ATTENTION}, last state cut: remaining share of the gradient", share, 0.1)


@study(trains=True)
def roles_of_sequences(
    cell: casing.Cell = "vanilla",
    width: casing.Width = 64,
    longest: casing.Longest = 12,
    steps: casing.Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What are the roles of source and target in training, and does it matter whether the decoder
    reads the target or its own output?

    The prediction depends on the source. The loss compares it with the target, which the decoder
    also reads, shifted by one. Without attention, the decoder predicts more characters correctly
    when it reads the target than when it reads its own output. With attention, the difference is
    near zero.

    $$ J = -\sum_t \log P(y_t \mid y_{<t}, x) $$

    The loss is measured with the source of another text, and with another target read. Accuracy is
    that of the next character after the right prefix (teacher forcing; Williams & Zipser, 1989),
    and in greedy decoding.

    Figure. Accuracy by position in the answer. Lines: the decoder reads the target; dashes: it
    reads its own output. With attention both are near 1. Without attention they begin together, and
    the dashes fall below the line.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    measured = {NONE: measure(setup), ATTENTION: measure(setup.with_attention())}
    yield from judged(measured)
    lines, places = [], range(1, longest + 1)
    for color, (name, one) in enumerate(measured.items()):
        lines.append(series(places, one.forced, f"{name}, teacher forcing", color=color))
        lines.append(series(places, one.free, f"{name}, free running", "dashes", color=color))
    yield chart(*lines, x="character", y="accuracy", y_limits=(-0.03, 1.05))


class Measured(NamedTuple):
    """Losses and accuracy of one network."""

    losses: tuple[float, float, float]
    """Loss with the text's own source and target; with another source; with another target read."""
    forced: Float[Tensor, " places"]
    """Accuracy at each place of the answer under teacher forcing."""
    free: Float[Tensor, " places"]
    """Accuracy at each place in free running."""


def measure(setup: casing.Setup) -> Measured:
    """Measure a network on new texts of the longest length."""
    run = setup.run()
    rows = casing.Rows.of(run, setup.texts(setup.longest, TEXTS))
    other = replace(rows, source=rows.source.roll(1, 0)), replace(rows, ids=rows.ids.roll(1, 0))
    with torch.inference_mode():
        own, source, target = (float(casing.loss(run, one)) for one in (rows, *other))
    forced, free = (
        (ids == rows.labels)[:, :-1].double().mean(0)
        for ids in (forced_ids(run, rows), free_ids(run, rows))
    )
    return Measured((own, source, target), forced, free)


@torch.inference_mode()
def forced_ids(run: Run, rows: casing.Rows) -> Int[Tensor, "b n"]:
    """Return the most probable token after each prefix of the right answer."""
    found: Tensor = run.model(rows.source, rows.lengths, rows.ids).argmax(-1)
    return found


@torch.inference_mode()
def free_ids(run: Run, rows: casing.Rows) -> Int[Tensor, "b n"]:
    """Return the tokens of greedy decoding."""
    assert isinstance(run.model, SequenceToSequence)
    model = run.model.condition(rows.source, rows.lengths)
    starts, length = rows.ids[:, :1].tolist(), rows.ids.shape[1]
    return torch.tensor([one.ids for one in generate_ids(model, starts, max_new_tokens=length)])


def judged(measured: Mapping[str, Measured]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    for name, one in measured.items():
        own, source, target = one.losses
        yield at_least(f"{name}: loss with another source minus own", source - own, 1)
        yield informational(f"{name}: loss with another target read minus own", target - own)
        first = one.forced[0] - one.free[0]
        yield equal(f"{name}: first character, teacher forcing minus free running", first, 0)
    gaps = {name: (one.forced - one.free).mean() for name, one in measured.items()}
    yield at_least(f"{NONE}: accuracy, teacher forcing minus free running", gaps[NONE], 0.05)
    gap = gaps[ATTENTION].abs()
    yield at_most(f"{ATTENTION}: accuracy, |teacher forcing − free running|", gap, 0.02)
