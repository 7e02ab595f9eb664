"""One-hot and sine positions at the input of a recurrent encoder."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import torch
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn

from regard.drawing import COLORS, INK, panels
from regard.positions import OneHot, Sinusoidal
from regard.runs.run import Run
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    informational,
    table,
)
from regard.studies.model_cache import cached_run
from regard.studies.recurrent.casing import (
    TOKEN,
    Longest,
    Seed,
    Setup,
    Steps,
    answers,
    body_of,
    right_texts,
)
from regard.studies.recurrent.one_hot import one_hot_is_learned
from regard.studies.study import Correction, study

NO, ONE_HOT, SINES = "none", "one-hot", "sines"
SINES_WIDTH = 32
BEYOND = 8
"""Characters by which some texts are longer than all in training."""


@study(
    asked=["eecs182-disc8 1.e"],
    question="What do one-hot and sinusoidal positions add to the input of an encoder, and can "
    "they be learned?",
    claim="With either, the network learns the task. A one-hot vector selects a column of the"
    " input weights, which is trained exactly like a learned vector; sinusoids need no "
    "more width for longer texts.",
    formula=r"W \begin{bmatrix} x_t \\ e_t \end{bmatrix} = W_x x_t + W_{:,t}, \quad "
    r"\mathrm{PE}(t) = \left[\sin \omega_k t, \cos \omega_k t\right]_k, \quad "
    r"\omega_k = 10000^{-2k/d}",
    corrections=[
        Correction(
            course="eecs182-disc8",
            says="One-hot positions aren't differentiable, and so they can't be learned.",
            right="Nothing has to be differentiated by a position. The vectors themselves are "
            "fixed, as sines are; the layer that reads them has a column for each position, whose "
            "gradient is that of a learned vector added to the layer's output: the two are the "
            "same model. Only the columns of positions that training never saw get no gradient.",
        )
    ],
    trains=True,
)
def encodings(
    width: Annotated[int, Meta(ge=64, le=256, description="of the states")] = 128,
    longest: Longest = 16,
    steps: Steps = 800,
    seed: Seed = 0,
) -> Evidence:
    """An encoder that reads one character after the other can count, and so find out by itself
    where each stands. Positions at its input spare it that. A one-hot vector has as many entries as
    there are places; sines and cosines of several frequencies tell any number of places apart with
    a width that one chooses.

    A linear layer that reads a one-hot vector adds one of its columns to its output. It learns
    these columns as it learns all else: the same training with learned vectors, added instead of
    read, gives the same losses to the last digit. What can't be learned either way are places that
    never occur in training.
    """
    setup = Setup(attention="softmax", width=width, longest=longest, steps=steps, seed=seed)
    seen = longest + TOKEN
    encoders = positions(seen + BEYOND)
    runs = {name: placed_run(setup, name, made) for name, made in encoders.items()}
    asked = (longest, longest + BEYOND)
    right = {
        name: {length: _right(run, setup, length) for length in asked} for name, run in runs.items()
    }
    turned = turned_columns(setup, runs[ONE_HOT], seen + BEYOND)
    return Evidence(
        numbers=(*judged(right, turned, seen), *one_hot_is_learned(seed)),
        figure=_drawn(turned, seen),
        table=table(
            ["positions", "width for n places", *(f"right, {n} characters" for n in asked)],
            [
                (name, wide, *right[name].values())
                for name, wide in ((NO, "0"), (ONE_HOT, "n"), (SINES, "any"))
            ],
        ),
    )


def positions(places: int) -> dict[str, nn.Module | None]:
    """Vectors of as many places, none of which is ever learned."""
    return {
        NO: None,
        ONE_HOT: OneHot(length=places, d=places),
        SINES: Sinusoidal(length=places, d=SINES_WIDTH),
    }


def placed_run(setup: Setup, name: str, encoding: nn.Module | None) -> Run:
    """A run whose encoder's input has positions.

    They are fixed, so they have no weights to be saved; what comes back from its folder gets them
    anew.
    """
    plan = setup.plan()
    if encoding is None:
        return cached_run(plan)
    plan.run.origin["positions"] = name
    add_positions(plan.run, encoding)
    run = cached_run(plan)
    add_positions(run, encoding)
    return run


def add_positions(run: Run, encoding: nn.Module) -> None:
    """Beside what the encoder reads, in place of the embeddings' last entries."""

    def placed(_: nn.Module, given: tuple[Tensor], embedded: Tensor) -> Tensor:
        vectors: Tensor = encoding(torch.arange(given[0].shape[1])).to(embedded)
        left = embedded[..., : -vectors.shape[-1]]
        return torch.cat([left, vectors.expand(*left.shape[:2], -1)], -1)

    body_of(run).encoder.embedding.register_forward_hook(placed)


def turned_columns(setup: Setup, run: Run, places: int) -> Float[Tensor, " places"]:
    """How far training turned the weights that read each one-hot place: 1 − cosine.

    Weight decay makes all of them shorter; only a gradient turns them.
    """
    before, after = (
        next(body_of(one).encoder.recurrence.parameters()).detach()[:, -places:]
        for one in (setup.plan().run, run)
    )
    turned: Tensor = 1 - torch.cosine_similarity(before, after, dim=0)
    return turned


def judged(
    right: Mapping[str, Mapping[int, float]], turned: Float[Tensor, " places"], seen: int
) -> Iterable[Measurement]:
    """What the claim wants of the networks."""
    for name, shares in right.items():
        within, beyond = shares.values()
        yield at_least(f"{name}: right texts, longest", within, 0.9)
        yield informational(f"{name}: right texts, longer than in training", beyond)
    learned = "one-hot: columns turned by training, least (0 if they couldn't be learned)"
    yield at_least(learned, turned[:seen].min(), 0.1)
    yield at_most(
        "one-hot: columns of places never seen, turned at most", turned[seen:].max(), 1e-4
    )


def _right(run: Run, setup: Setup, length: int) -> float:
    texts = setup.texts(length)
    return right_texts(answers(run, texts), texts)


def _drawn(turned: Float[Tensor, " places"], seen: int) -> Drawing:
    with panels(height=3.0) as (figure, (axes,)):
        axes.bar(range(len(turned)), turned.numpy(), color=COLORS[0], width=0.8)
        axes.axvline(seen - 0.5, linestyle=":", color=INK, linewidth=1)
        axes.set(xlabel="place in the source", ylabel="column turned, 1 − cosine")
        return drawing(
            figure,
            "How far training turned the column of weights that reads each one-hot place: far at "
            "all places that occur, not at all beyond the dotted line, at places that no text of "
            "the training has.",
            name="encodings",
        )
