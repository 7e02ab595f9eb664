"""One-hot and sinusoidal positions at the input of a recurrent encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, TypeAlias

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn

from regard.positions import Learned, OneHot, Sinusoidal
from regard.runs.run import Run
from regard.studies.figure import Line, bars, chart
from regard.studies.finding import Measurements, at_least, at_most, equal, informational
from regard.studies.model_cache import cached_run
from regard.studies.recurrent import casing
from regard.studies.recurrent.casing import TOKEN, Setup, body_of
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.tensors import draw_normal, largest

Encoding: TypeAlias = OneHot | Sinusoidal
Columns: TypeAlias = Float[Tensor, " places"]
"""Change of the direction of each place's column of weights by training."""
NO, ONE_HOT, SINES = "none", "one-hot", "sines"
SINES_WIDTH = 16
BEYOND = 8
"""Number of characters by which some test texts are longer than those in training."""
PLACES, INPUTS, ROWS = 12, 6, 8
"""Sizes of the two layers in float64."""


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
    setup = Setup(cell=cell, width=width, longest=longest, steps=steps, seed=seed).with_attention()
    seen = longest + TOKEN
    places = seen + BEYOND
    placed = replace(setup, steps=2 * setup.steps)
    runs = {
        NO: setup.run(),
        ONE_HOT: placed_run(placed, ONE_HOT, OneHot(length=places, d=places)),
        SINES: placed_run(placed, SINES, Sinusoidal(length=places, d=SINES_WIDTH)),
    }
    asked = [setup.texts(length) for length in (longest, longest + BEYOND)]
    right = {
        name: [casing.right_texts(casing.answers(run, texts), texts) for texts in asked]
        for name, run in runs.items()
    }
    change = change_of_columns(placed, runs[ONE_HOT], places)
    yield from judged(right, change, seen)
    yield from one_hot_is_learned(seed)
    yield chart(
        bars(change),
        Line(x=seen - 0.5, label="end of the longest training text"),
        x="place in the source",
        y="change of the column, 1 − cosine",
    )


def placed_run(setup: Setup, name: str, encoding: Encoding) -> Run:
    """Return a trained run whose encoder reads positions.

    Positions are fixed and not saved with the weights, so they are added again after loading.
    """
    plan = setup.plan()
    plan.run.origin["positions"] = f"{name} {encoding.vectors.shape[1]}"
    add_positions(plan.run, encoding)
    run = cached_run(plan)
    add_positions(run, encoding)
    return run


def add_positions(run: Run, encoding: Encoding) -> None:
    """Replace the last entries of the encoder's embeddings by positions."""

    def placed(_: nn.Module, given: tuple[Tensor], embedded: Tensor) -> Tensor:
        places = torch.arange(given[0].shape[1])  # padding may reach beyond the last
        vectors = encoding(places.clamp(max=len(encoding.vectors) - 1)).to(embedded)
        left = embedded[..., : -vectors.shape[-1]]
        return torch.cat([left, vectors.expand(*left.shape[:2], -1)], -1)

    body_of(run).encoder.embedding.register_forward_hook(placed)


def change_of_columns(setup: Setup, run: Run, places: int) -> Columns:
    """Return 1 − the cosine of each place's weights before and after training.

    Weight decay shortens all of them; only a gradient changes their direction.
    """
    before, after = (
        next(body_of(one).encoder.recurrence.parameters()).detach()[:, -places:]
        for one in (setup.plan().run, run)
    )
    change: Tensor = 1 - torch.cosine_similarity(before, after, dim=0)
    return change


def judged(right: Mapping[str, Sequence[float]], change: Columns, seen: int) -> Measurements:
    """Yield the measurements that the claim depends on.

    `right` are shares of right texts of the longest length in training, and of a longer one.
    """
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
    (gradient,) = torch.autograd.grad(reading.square().mean(), both)
    (vectors,) = torch.autograd.grad(adding.square().mean(), learned.vectors)
    columns = gradient[:, INPUTS:].T
    name = "one-hot read and learned added: largest difference of"
    yield at_most(f"{name} outputs", largest((reading - adding).detach()), 1e-12)
    yield at_most(f"{name} gradients", largest(columns - vectors), 1e-12)
    least = columns[:-1].norm(dim=-1).min()
    yield at_least("least gradient of a column (0 if it couldn't be learned)", least, 1e-3)
    yield equal("gradient of the column of a place that never occurs", columns[-1].norm(), 0)
