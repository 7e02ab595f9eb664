"""Training of an encoder–decoder: its gradient, the roles of both sequences, and positions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from msgspec import Meta
from torch import Tensor, nn

from regard.decoding.generate import generate_ids
from regard.models.builders import SequenceToSequence
from regard.models.recurrent import RecurrentStates
from regard.models.seq2seq import EncoderDecoderStates
from regard.positions import Learned, OneHot, Sinusoidal
from regard.runs.run import Run
from regard.studies.figure import Line, bars, chart, series
from regard.studies.finding import Measurements, at_least, at_most, equal, informational
from regard.studies.model_cache import cached_run
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import ATTENTION, NONE, TOKEN
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, largest
from regard.tasks.examples import Example

GRADIENT_TEXTS, TEXTS = 64, 400
"""Numbers of texts for which gradients and accuracy are measured."""
Shares: TypeAlias = Mapping[str, Sequence[float]]
"""Shares of right texts with each encoding: of the longest length in training, and of a longer."""
WITHOUT, ONE_HOT, SINES = "none", "one-hot", "sines"
SINES_WIDTH = 16
"""Width of the concatenated sines."""
BEYOND = 8
"""Number of characters by which some test texts are longer than those in training."""
PLACES, INPUTS, ROWS = 12, 6, 8
"""Sizes of the two layers in float64."""


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

    The network is untrained. Its states and outputs are compared for two texts.

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
        before = nn.utils.parameters_to_vector(side.parameters())
        casing.answers(run, texts)
        moved = nn.utils.parameters_to_vector(side.parameters()) - before
        yield equal(f"change of the {name}'s weights by inference", largest(moved), 0)
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
    that under teacher forcing (Williams & Zipser, 1989), and in greedy decoding.

    Figure. Accuracy by position in the answer. Lines: the decoder reads the target; dashes: it
    reads its own output. With attention both are near 1. Without attention they begin together, and
    the dashes fall below the line.
    """
    setup = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    measured = {NONE: roles(setup), ATTENTION: roles(setup.with_attention())}
    yield from judged_roles(measured)
    lines, places = [], range(1, longest + 1)
    for color, (name, one) in enumerate(measured.items()):
        lines.append(series(places, one.forced, f"{name}, teacher forcing", color=color))
        lines.append(series(places, one.free, f"{name}, free running", "dashes", color=color))
    yield chart(*lines, x="character", y="accuracy", y_limits=(-0.03, 1.05))


class Roles(NamedTuple):
    """Losses and accuracy of one network."""

    losses: tuple[float, float, float]
    """Loss with the text's own source and target; with another source; with another target read."""
    forced: Float[Tensor, " places"]
    """Accuracy at each place of the answer under teacher forcing."""
    free: Float[Tensor, " places"]
    """Accuracy at each place in free running."""


def roles(setup: casing.Setup) -> Roles:
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
    return Roles((own, source, target), forced, free)


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


def judged_roles(measured: Mapping[str, Roles]) -> Measurements:
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


@study(trains=True)
def encodings(
    cell: casing.Cell = "vanilla",
    width: Annotated[int, Meta(ge=64, le=256)] = 64,
    longest: casing.Longest = 12,
    steps: casing.Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do one-hot and sinusoidal positions add to the input of an encoder, and can they be
    learned?

    With either, the network learns the task. A one-hot vector selects a column of the input
    weights, which is trained exactly like a learned vector. Sinusoids need no more width for longer
    texts.

    $$ W \begin{bmatrix} x_t \\ e_t \end{bmatrix} = W_x x_t + W_{:,t}, \quad \mathrm{PE}(t) =
    \left[\sin \omega_k t, \cos \omega_k t\right]_k, \quad \omega_k = 10000^{-2k/d} $$

    The network is trained without positions in half as many steps as with either encoding. In
    float64, a layer that reads one-hot places is compared with one that adds learned vectors.

    Figure. Change of direction, by training, of the weights that read each one-hot place. It is
    large at all places that occur, and 0 beyond the dotted line, at places that occur in no
    training text.

    Args:
        width: width of the states
    """
    alone = casing.Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed)
    setup, seen = alone.with_attention(), longest + TOKEN
    places = seen + BEYOND
    placed = replace(setup, steps=2 * setup.steps)
    runs = {
        WITHOUT: setup.run(),
        ONE_HOT: placed_run(placed, ONE_HOT, OneHot(length=places, d=places)),
        SINES: placed_run(placed, SINES, Sinusoidal(length=places, d=SINES_WIDTH)),
    }
    asked = [setup.texts(length) for length in (longest, longest + BEYOND)]
    right = {
        name: [casing.right_texts(casing.answers(run, texts), texts) for texts in asked]
        for name, run in runs.items()
    }
    change = change_of_columns(placed, runs[ONE_HOT], places)
    yield from judged_encodings(right, change, seen)
    yield from one_hot_is_learned(seed)
    yield chart(
        bars(change),
        Line(x=seen - 0.5, label="end of the longest training text"),
        x="place in the source",
        y="change of the column, 1 − cosine",
    )


def placed_run(setup: casing.Setup, name: str, encoding: OneHot | Sinusoidal) -> Run:
    """Return a trained run whose encoder reads positions.

    Positions are fixed and not saved with the weights, so they are added again after loading.
    """
    plan = setup.plan()
    plan.run.origin["positions"] = f"{name} {encoding.vectors.shape[1]}"
    add_positions(plan.run, encoding)
    run = cached_run(plan)
    add_positions(run, encoding)
    return run


def add_positions(run: Run, encoding: OneHot | Sinusoidal) -> None:
    """Replace the last entries of the encoder's embeddings by positions."""

    def placed(_: nn.Module, given: tuple[Tensor], embedded: Tensor) -> Tensor:
        places = torch.arange(given[0].shape[1])  # padding may reach beyond the last
        vectors = encoding(places.clamp(max=len(encoding.vectors) - 1)).to(embedded)
        left = embedded[..., : -vectors.shape[-1]]
        return torch.cat([left, vectors.expand(*left.shape[:2], -1)], -1)

    casing.body_of(run).encoder.embedding.register_forward_hook(placed)


def change_of_columns(setup: casing.Setup, run: Run, places: int) -> Float[Tensor, " places"]:
    """Return 1 − the cosine of each place's weights before and after training.

    Weight decay shortens all of them; only a gradient changes their direction.
    """
    before, after = (
        next(casing.body_of(one).encoder.recurrence.parameters()).detach()[:, -places:]
        for one in (setup.plan().run, run)
    )
    change: Tensor = 1 - torch.cosine_similarity(before, after, dim=0)
    return change


def judged_encodings(right: Shares, change: Float[Tensor, " places"], seen: int) -> Measurements:
    """Yield the measurements that the claim depends on."""
    for name, (within, beyond) in right.items():
        yield at_least(f"{name}: right texts, longest", within, 0.9)
        yield informational(f"{name}: right texts, longer than in training", beyond)
    learned = "one-hot: least change of a column by training, 1 − cosine (0 if not learned)"
    yield at_least(learned, change[:seen].min(), 0.1)
    never = change[seen:].max()
    yield at_most("one-hot: largest change of a column that no training text reads", never, 1e-4)


def one_hot_is_learned(seed: int) -> Measurements:
    """Yield differences in outputs and gradients of two equivalent layers, in float64.

    One reads input and one-hot place, concatenated; the other reads the input alone and adds a
    learned vector of the place. The last place never occurs.
    """
    generator = torch.Generator().manual_seed(seed)
    places = torch.arange(PLACES - 1)
    x = draw_normal(generator, ROWS, len(places), INPUTS)
    both = draw_normal(generator, INPUTS, INPUTS + PLACES)
    one_hot = OneHot(length=PLACES, d=PLACES)(places).double().expand(ROWS, -1, -1)
    learned = Learned(length=PLACES, d=INPUTS).double()
    learned.vectors.data.copy_(both[:, INPUTS:].T)
    reading = torch.cat([x, one_hot], -1) @ both.requires_grad_().T
    adding = x @ both[:, :INPUTS].detach().T + learned(places)
    (of_matrix,) = torch.autograd.grad(reading.square().mean(), both)
    (vectors,) = torch.autograd.grad(adding.square().mean(), learned.vectors)
    columns = of_matrix[:, INPUTS:].T
    name = "one-hot read and learned added: largest difference of"
    yield at_most(f"{name} outputs", largest((reading - adding).detach()), 1e-12)
    yield at_most(f"{name} gradients", largest(columns - vectors), 1e-12)
    least = columns[:-1].norm(dim=-1).min()
    yield at_least("least gradient of a column (0 if it couldn't be learned)", least, 1e-3)
    yield equal("gradient of the column of a place that never occurs", columns[-1].norm(), 0)
