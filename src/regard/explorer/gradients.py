"""How a loss depends on each weight of attention: ∂L/∂A[i, j]."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Mask, State
from regard.errors import UserError
from regard.explorer.capture import AnyBias, from_distances, mechanisms, remembered
from regard.explorer.maps import Map, layer_names
from regard.models.families import LanguageModel, MaskedLanguageModel, Model, SequenceToSequence

if TYPE_CHECKING:
    from regard.explorer.subjects import Subject

Applied: TypeAlias = list[tuple[str, Tensor]]
"""The matrices that layers multiplied their values with, with the layers' names."""


@dataclass(frozen=True, eq=False)
class Gradient:
    """What a loss gains where a weight of a layer does."""

    layer: str
    weights: Float[Tensor, "batch heads queries keys"]
    gradient: Float[Tensor, "batch heads queries keys"]

    @property
    def norm(self) -> Float[Tensor, "batch heads"]:
        """The length of each head's gradient: how much rides on where it looks."""
        norm: Tensor = self.gradient.flatten(2).norm(dim=-1)
        return norm


def attention_gradients(model: nn.Module, loss: Callable[[], Float[Tensor, ""]]) -> list[Gradient]:
    """∂L/∂A of each layer, in the order in which the model applies them.

    A weight is moved alone, its row no longer sums to 1, and what later layers make of it counts.
    """
    return slopes(loss, _explicit(model))


def slopes(
    loss: Callable[[], Float[Tensor, ""]], explicit: AbstractContextManager[Applied]
) -> list[Gradient]:
    """∂L/∂A of each matrix A that a model applies while its attention is explicit."""
    with torch.enable_grad(), explicit as applied:
        value = loss()
        found = torch.autograd.grad(value, [weights for _, weights in applied], allow_unused=True)
    return [
        Gradient(name, weights.detach(), torch.zeros_like(weights) if grad is None else grad)
        for (name, weights), grad in zip(applied, found, strict=True)
    ]


def gathered(
    weights: Float[Tensor, "batch heads queries keys"],
    value: Float[Tensor, "batch kv_heads keys e"],
    mask: Mask | None,
    bias: AnyBias,
) -> Float[Tensor, "batch heads queries e"]:
    """What an output is where it is made of a matrix of weights."""
    every = value.repeat_interleave(weights.shape[1] // value.shape[1], 1)
    out = weights @ every.to(weights.dtype) + from_distances(weights, mask, bias)
    return out.to(value.dtype)


def text_loss(model: Model, *inputs: Tensor) -> Float[Tensor, ""]:
    """The mean cross entropy of a text under a model, in nats a token.

    A language model is asked for each token after the first; one that fills masks for each token
    at its own place, with none of them hidden.

    Raises:
        UserError: the model gives texts no probability, or the text is too short to have one.
    """
    match model:
        case LanguageModel():
            ids = inputs[0]
            logits, labels = model.head(model.body(*inputs))[:, :-1], ids[:, 1:]
        case SequenceToSequence():
            ids = inputs[2]
            logits, labels = model.head(model.body(*inputs))[:, :-1], ids[:, 1:]
        case MaskedLanguageModel():
            logits, labels = model.head(model.body(*inputs)), inputs[0]
        case _:
            raise UserError("gradients need a model that predicts tokens; this one doesn't")
    return cross_entropy(logits, labels)


def cross_entropy(
    logits: Float[Tensor, "batch n tokens"], labels: Int[Tensor, "batch n"]
) -> Float[Tensor, ""]:
    """The mean cross entropy of labels, in nats.

    Raises:
        UserError: there are none.
    """
    if not labels.numel():
        raise UserError("a text of one token has no loss; gradients need a longer one")
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def gradient_norms(
    model: "Subject", texts: Sequence[str], heads_of: Map
) -> Float[Tensor, " heads"]:
    """The length of ∂L/∂A of the heads that a map shows, layer by layer, averaged over texts.

    The map is the first of those that the model has of a text.

    Raises:
        UserError: a text can't be read, or has no loss.
    """
    norms = []
    for text in texts:
        found = model.gradients(text)
        names = layer_names([one.layer for one in found])
        by_layer = {name: one.norm[0] for name, one in zip(names, found, strict=True)}
        shown = [by_layer[layer.name][list(layer.heads)] for layer in heads_of.layers]
        norms.append(torch.cat(shown).float().cpu())
    return torch.stack(norms).mean(0)


def movable(weights: Tensor) -> Tensor:
    """Weights that a loss can be asked about, also where nothing that they are made of learns."""
    return weights if weights.requires_grad else weights.requires_grad_()


@contextmanager
def _explicit(model: nn.Module) -> Iterator[Applied]:
    """In the with block, each output is made of a matrix of weights, which is noted here."""
    applied: Applied = []
    with ExitStack() as replaced:
        for name, module in mechanisms(model):
            replaced.enter_context(_replaced(name, module, applied))
        yield applied


@contextmanager
def _replaced(name: str, module: Attention, applied: Applied) -> Iterator[None]:
    """Let a mechanism multiply weights and values, in whole rows or from a memory."""

    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Mask | None = None,
        bias: AnyBias = None,
    ) -> Tensor:
        weights = module.weights(query, key, mask=mask, bias=bias)
        applied.append((name, movable(weights)))
        return gathered(weights, value, mask, bias)

    with remembered(module) as made_of:

        def reading(query: Tensor, memory: State) -> Tensor:
            key, value, mask = made_of(memory)
            return forward(query, key, value, mask=mask)

        vars(module).update(forward=forward, read=reading)
        try:
            yield
        finally:
            del vars(module)["forward"], module.read
