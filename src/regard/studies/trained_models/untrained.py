"""Attention before training and after, and the gradient that leads from one to the other."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from msgspec import Meta
from torch import Tensor, nn

from regard.attention import Attention
from regard.drawing import heat_map, panels
from regard.explorer.look import look
from regard.models.builders import Model
from regard.runs.run import Run
from regard.studies.finding import (
    Drawing,
    Evidence,
    Measurement,
    at_least,
    at_most,
    drawing,
    equal,
    named,
    table,
)
from regard.studies.study import Correction, study
from regard.studies.trained_models.reading import (
    HEADS,
    LAYERS,
    WIDTH,
    Row,
    masked_rows,
    plan_reader,
    trained_reader,
)
from regard.studies.trained_models.sentences import RELATIONS, labeled_texts

TEXTS = 15
INITIAL = 0.02
"""Standard deviation of a new model's weights."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What heads do in a model; `heads` counts through all layers."""

    entropy: Float[Tensor, " heads"]
    """Of the weights, as a share of ln n, averaged over rows and queries."""
    spread: float
    """Standard deviation of the scores of one query in the first layer."""
    norm: Float[Tensor, " heads"]
    """Norm of ∂L/∂A, averaged over rows."""
    at_the_word: float
    """|∂L/∂A_ij| at the word j that the masked i depends on, over the mean of all j."""
    off: float
    """Largest difference of ∂L/∂A_ij and (∂L/∂o_i)·v_j."""


@study(
    asked=["eecs182-hw8 2.d"],
    question="What do attention maps look like before training, and which gradient changes them?",
    claim="With weights N(0, σ²), the standard deviation of scores is only dσ², so attention "
    "is nearly uniform; training ends that. The gradient of a weight is (∂L/∂o_i)·v_j, "
    "and before training it is no larger at the words that heads will attend to.",
    formula=r"\mathrm{sd}_j\left(\frac{q_i \cdot k_j}{\sqrt{d_h}}\right) = d \sigma^2, \quad "
    r"\frac{\partial L}{\partial A_{ij}} = \frac{\partial L}{\partial o_i} \cdot v_j",
    corrections=[
        Correction(
            course="eecs182-hw8",
            says="Part 2.d.ii expects larger gradients in an untrained model where a trained one "
            "attends strongly, since these are the features that are learned",
            right="before training |∂L/∂A_ij| at such words is the mean of all words (1.0 times, "
            "over four relations): values are random, and the gradient can't know them yet; only "
            "in the trained model is it larger there",
        )
    ],
    trains=True,
)
def untrained(
    std: Annotated[
        float, Meta(ge=0.001, le=0.5, description="standard deviation of weights before training")
    ] = INITIAL,
    steps: Annotated[int, Meta(ge=1, le=4000, description="steps of training")] = 1000,
    seed: Annotated[int, Meta(ge=0, lt=2**32, description="seed of texts and weights")] = 0,
) -> Evidence:
    """A layer norm gives each token a vector of length √d; W_q and W_k with entries N(0, σ²) make
    products whose deviation, divided by √d_h, is dσ². With d = 64 and σ = 0.02 that is 0.026:
    weights differ from 1/n by some 3 %. (In a BERT of d = 768 it is 0.31: there, maps before
    training are even to some 30 %.)

    The loss reaches a weight by what it lets through: ∂L/∂A_ij is the product of the value v_j with
    the gradient at the output, whatever A_ij is. Before training values are random, and so is this
    product: in a single text it is no larger at the words that the model will look at than at all
    others. After training it is, for then values say something; but its norm is a tenth, since
    little is left to be learned.
    """
    new, run = plan_reader(1, seed).run, trained_reader(steps, seed)
    rescale(new.model, std / INITIAL)
    texts = labeled_texts(seed, "test", TEXTS)
    rows = [row for relation in RELATIONS for row in masked_rows(run, texts, relation)]
    targets = [
        run.tokenizer.encode(text.text)[dependent]
        for relation in RELATIONS
        for text in texts
        for dependent, _ in text.pairs[relation]
    ]
    before, after = (measure(model, rows, targets) for model in (new.model, run.model))
    return Evidence(
        numbers=judged(before, after, std),
        figure=_drawn(new, run, rows[-1]),
        table=table(
            ["head", "entropy before", "after", "norm of ∂L/∂A before", "after"],
            [
                (f"{i // HEADS}.{i % HEADS}", *(float(x[i]) for x in columns))
                for columns in [(before.entropy, after.entropy, before.norm, after.norm)]
                for i in range(LAYERS * HEADS)
            ],
        ),
        explorer_view=look(named(new, "before training"), texts[0].text)
        .beside(look(named(run, "after training"), texts[0].text))
        .data,
    )


def judged(before: Measured, after: Measured, std: float) -> tuple[Measurement, ...]:
    """What the claim wants."""
    predicted = WIDTH * std**2
    return (
        equal("before: deviation of scores", before.spread, predicted, within=0.15 * predicted),
        at_least("before: least entropy of a head / ln n", before.entropy.min(), 0.99),
        at_most("after: least entropy of a head / ln n", after.entropy.min(), 0.5),
        at_most("∂L/∂A_ij − (∂L/∂o_i)·v_j", max(before.off, after.off), 1e-9),
        equal("before: |∂L/∂A| at the word looked for / mean", before.at_the_word, 1, within=0.2),
        at_least("after: the same, beyond before", after.at_the_word - before.at_the_word, 0.1),
    )


@torch.no_grad()
def rescale(model: nn.Module, factor: float) -> None:
    """All matrices times a factor."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.mul_(factor)


def measure(model: Model, rows: Sequence[Row], targets: Sequence[int]) -> Measured:
    """Weights and gradients on rows of which one token is masked, in float64."""
    exact = copy.deepcopy(model).double().eval()
    entropies, norms, ratios, spreads, off = [], [], [], [], 0.0
    for (ids, place, other), target in zip(rows, targets, strict=True):
        with kept_weights(exact) as layers:
            logits = exact(torch.tensor([ids]))[0, place]
            F.cross_entropy(logits, torch.tensor(target)).backward()
        weights, gradients, errors = (
            torch.cat([x[0] for x in several])
            for several in zip(*(layer.found() for layer in layers), strict=True)
        )
        entropies.append(torch.special.entr(weights).sum(-1).mean(-1) / math.log(len(ids)))
        norms.append(gradients.flatten(1).norm(dim=1))
        size = gradients[:, place].abs()
        ratios.append(size[:, other] / size.mean(-1).clamp(min=1e-300))
        spreads.append(weights[:HEADS].log().std(-1).mean())
        off = max(off, float(errors.abs().max()))
    return Measured(
        entropy=torch.stack(entropies).mean(0),
        spread=float(torch.stack(spreads).mean()),
        norm=torch.stack(norms).mean(0),
        at_the_word=float(torch.stack(ratios).mean()),
        off=off,
    )


@dataclass(frozen=True)
class Kept:
    """What one layer computed."""

    weights: Float[Tensor, "b heads n n"]
    value: Float[Tensor, "b heads n e"]
    out: Float[Tensor, "b heads n e"]

    def found(self) -> tuple[Tensor, Tensor, Tensor]:
        """Weights, the loss's gradient by them, and its difference from (∂L/∂o_i)·v_j."""
        assert self.weights.grad is not None
        assert self.out.grad is not None
        by_hand = self.out.grad @ self.value.mT
        return self.weights.detach(), self.weights.grad, (self.weights.grad - by_hand).detach()


@contextmanager
def kept_weights(model: nn.Module) -> Iterator[list[Kept]]:
    """Let each attention multiply its weights and values one after the other, and keep them."""
    kept: list[Kept] = []

    def hook(module: Attention, args: tuple[Tensor, ...], kwargs: Any, _out: Tensor) -> Tensor:
        query, key, value = args
        weights = module.weights(query, key, **kwargs)
        out = weights @ value
        weights.retain_grad()
        out.retain_grad()
        kept.append(Kept(weights, value, out))
        return out

    hooks = [
        module.register_forward_hook(hook, with_kwargs=True)
        for module in model.modules()
        if isinstance(module, Attention)
    ]
    try:
        yield kept
    finally:
        for one in hooks:
            one.remove()


def _drawn(new: Run, run: Run, row: Row) -> Drawing:
    ids = torch.tensor([row[0]])
    with panels(HEADS, 2, height=4.0, width=7.2) as (figure, axes):
        for start, one, name in ((0, new, "before"), (HEADS, run, "after")):
            with kept_weights(one.model) as layers, torch.enable_grad():
                one.model(ids)
            for head, panel in enumerate(axes[start : start + HEADS]):
                heat_map(panel, layers[0].weights[0, head].detach().numpy())
                panel.set_title(f"{name}, head 0.{head}", fontsize=9)
        return drawing(
            figure,
            "Maps of the first layer for one text. Before training all are evenly pale; after it, "
            "each head has dark spots on a few words.",
            name="untrained",
        )
