"""One-hot and sine positions at the input of a recurrent encoder."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import pi
from typing import Annotated, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn

from regard.positions import Learned, OneHot, Sinusoidal
from regard.runs.run import Run
from regard.studies.figure import Line, bars, one_chart
from regard.studies.finding import (
    EvidenceParts,
    Measurement,
    at_least,
    at_most,
    equal,
    informational,
)
from regard.studies.model_cache import cached_run
from regard.studies.recurrent.casing import (
    TOKEN,
    Cell,
    Longest,
    Setup,
    Steps,
    answers,
    body_of,
    right_texts,
)
from regard.studies.study import Seed, study
from regard.studies.tensors import draw_normal

Encoding: TypeAlias = OneHot | Sinusoidal
Columns: TypeAlias = Float[Tensor, " places"]
"""How far training turned the column of weights of each place."""
NO, ONE_HOT, SINES = "none", "one-hot", "sines"
SINES_WIDTH, BASE = 16, 10_000.0
BEYOND = 8
"""Characters by which some texts are longer than all in training."""
PLACES, INPUTS, ROWS = 12, 6, 8
"""Of the two layers in float64."""


@study(trains=True)
def encodings(
    cell: Cell = "vanilla",
    width: Annotated[int, Meta(ge=64, le=256)] = 64,
    longest: Longest = 12,
    steps: Steps = 3200,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""What do one-hot and sinusoidal positions add to the input of an encoder, and can they be
    learned?

    With either, the network learns the task. A one-hot vector selects a column of the input
    weights, which is trained exactly like a learned vector; sinusoids need no more width for longer
    texts.

    $$ W \begin{bmatrix} x_t \\ e_t \end{bmatrix} = W_x x_t + W_{:,t}, \quad \mathrm{PE}(t) =
    \left[\sin \omega_k t, \cos \omega_k t\right]_k, \quad \omega_k = 10000^{-2k/d} $$

    An encoder that reads one character after the other can count, and so find out by itself
    where each stands; here it manages without positions, after half as many steps. A one-hot vector
    has as many entries as there are places; sines and cosines of several frequencies tell any
    number of places apart with a width that one chooses.

    A linear layer that reads a one-hot vector adds one of its columns to its output. It learns
    these columns as it learns all else: with learned vectors, added instead of read, outputs and
    gradients are the same to the last digit, and so is all training. What can't be learned either
    way are places that never occur in training.

    Figure. How far training turned the column of weights that reads each one-hot place: far at all
    places that occur, not at all beyond the dotted line, at places that no text of the training
    has.

    Args:
        width: width of the states
    """
    setup = Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed).with_attention()
    seen = longest + TOKEN
    places = seen + BEYOND
    placed = replace(setup, steps=2 * setup.steps)
    runs = {
        NO: setup.run(),
        ONE_HOT: placed_run(placed, ONE_HOT, OneHot(length=places, d=places)),
        SINES: placed_run(placed, SINES, Sinusoidal(length=places, d=SINES_WIDTH, base=BASE)),
    }
    asked = {length: setup.texts(length) for length in (longest, longest + BEYOND)}
    right = {
        name: {length: right_texts(answers(run, texts), texts) for length, texts in asked.items()}
        for name, run in runs.items()
    }
    turned = turned_columns(placed, runs[ONE_HOT], places)
    yield from judged(right, turned, seen)
    yield from wavelengths(places)
    yield from one_hot_is_learned(seed)
    yield one_chart(
        bars(turned),
        Line(x=seen - 0.5, label="end of the longest text"),
        x="place in the source",
        y="column turned, 1 − cosine",
    )


def placed_run(setup: Setup, name: str, encoding: Encoding) -> Run:
    """A run whose encoder's input has positions.

    They are fixed, so they have no weights to be saved; what comes back from its folder gets them
    anew.
    """
    plan = setup.plan()
    plan.run.origin["positions"] = f"{name} {encoding.vectors.shape[1]}"
    add_positions(plan.run, encoding)
    run = cached_run(plan)
    add_positions(run, encoding)
    return run


def add_positions(run: Run, encoding: Encoding) -> None:
    """Beside what the encoder reads, in place of the embeddings' last entries."""

    def placed(_: nn.Module, given: tuple[Tensor], embedded: Tensor) -> Tensor:
        places = torch.arange(given[0].shape[1])  # padding may reach beyond the last
        vectors = encoding(places.clamp(max=len(encoding.vectors) - 1)).to(embedded)
        left = embedded[..., : -vectors.shape[-1]]
        return torch.cat([left, vectors.expand(*left.shape[:2], -1)], -1)

    body_of(run).encoder.embedding.register_forward_hook(placed)


def turned_columns(setup: Setup, run: Run, places: int) -> Columns:
    """How far training turned the weights that read each one-hot place: 1 − cosine.

    Weight decay makes all of them shorter; only a gradient turns them.
    """
    before, after = (
        next(body_of(one).encoder.recurrence.parameters()).detach()[:, -places:]
        for one in (setup.plan().run, run)
    )
    turned: Tensor = 1 - torch.cosine_similarity(before, after, dim=0)
    return turned


Right: TypeAlias = Mapping[str, Mapping[int, float]]
"""Share of right texts, by encoding and by their length."""


def judged(right: Right, turned: Columns, seen: int) -> Iterable[Measurement]:
    """What the claim requires of the networks."""
    for name, shares in right.items():
        within, beyond = shares.values()
        yield at_least(f"{name}: right texts, longest", within, 0.9)
        yield informational(f"{name}: right texts, longer than in training", beyond)
    learned = "one-hot: columns turned by training, least (0 if they couldn't be learned)"
    yield at_least(learned, turned[:seen].min(), 0.1)
    never = turned[seen:].max()
    yield at_most("one-hot: columns of places never seen, turned at most", never, 1e-4)


def wavelengths(places: int) -> Iterable[Measurement]:
    """How far each pair of a sine and a cosine turns from place to place."""
    vectors = Sinusoidal(length=places, d=SINES_WIDTH, base=BASE).vectors
    turns = torch.view_as_complex(vectors.flip(-1).unflatten(-1, (-1, 2)).contiguous())
    angles = (turns[1:] / turns[:-1]).angle()
    longest, top = 2 * pi / angles[0].min(), 2 * pi * BASE
    exact = top * BASE ** (-2 / SINES_WIDTH)
    yield equal("sines: longest wavelength by 2π·10000^(1 − 2/d)", longest / exact, 1, 1e-9)
    yield at_most("sines: longest wavelength by 10000·2π", longest / top, 0.9)
    change = (angles - angles[0]).abs().max()
    yield at_most("sines: change of a frequency from place to place", change, 1e-12)


def one_hot_is_learned(seed: int) -> Iterable[Measurement]:
    """The same output and the same gradient of two layers, in float64.

    One reads input and one-hot place side by side; the other reads the input alone, and adds a
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
    columns, vectors = (
        torch.autograd.grad(output.square().mean(), weights)[0]
        for output, weights in ((reading, both), (adding, learned.vectors))
    )
    columns = columns[:, INPUTS:].T
    apart = {"outputs": reading - adding, "gradients of columns and vectors": columns - vectors}
    for name, difference in apart.items():
        largest = difference.detach().abs().max()
        yield at_most(f"one-hot read, learned added: {name} apart", largest, 1e-12)
    least = columns[:-1].norm(dim=-1).min()
    yield at_least("gradient of a column, least (0 if it couldn't be learned)", least, 1e-3)
    yield equal("gradient of the column of the place that never occurs", columns[-1].norm(), 0)
