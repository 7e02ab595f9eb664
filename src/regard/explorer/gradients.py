"""Gradients of a loss with respect to attention weights: ∂L/∂A[i, j]."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import UserError
from regard.explorer.attention_maps import AttentionMap, layer_names
from regard.explorer.intercept import AttentionRecord, Interceptor
from regard.models.builders import LanguageModel, MaskedLanguageModel, Model, SequenceToSequence


@dataclass(frozen=True, eq=False)
class Gradient:
    """∂L/∂A of one layer."""

    layer: str
    weights: Float[Tensor, "batch heads queries keys"]
    gradient: Float[Tensor, "batch heads queries keys"]

    @property
    def norm(self) -> Float[Tensor, "batch heads"]:
        """‖∂L/∂A‖ of each head."""
        norm: Tensor = self.gradient.flatten(2).norm(dim=-1)
        return norm


def weight_gradients(
    loss: Callable[[], Float[Tensor, ""]], interceptor: Interceptor
) -> list[Gradient]:
    """Return ∂L/∂A of each layer, in the order of their calls.

    Each weight is an independent variable, so rows needn't sum to 1. Gradients include effects
    through later layers.
    """
    applied: list[tuple[str, Tensor]] = []

    def handle(record: AttentionRecord) -> Tensor:
        weights = record.weights
        if not weights.requires_grad:  # queries and keys come from frozen parameters
            weights.requires_grad_()
        applied.append((record.layer, weights))
        return record.output_from(weights).to(record.value.dtype)

    with torch.enable_grad(), interceptor(handle):
        value = loss()
        found = torch.autograd.grad(value, [weights for _, weights in applied], allow_unused=True)
    return [
        Gradient(name, weights.detach(), torch.zeros_like(weights) if grad is None else grad)
        for (name, weights), grad in zip(applied, found, strict=True)
    ]


def gradient_norms(
    texts: Sequence[Sequence[Gradient]], heads_of: AttentionMap
) -> Float[Tensor, " heads"]:
    """Return ‖∂L/∂A‖ of the heads that a map shows, layer by layer, averaged over texts."""
    norms = []
    for gradients in texts:
        names = layer_names([one.layer for one in gradients])
        by_layer = {name: one.norm[0] for name, one in zip(names, gradients, strict=True)}
        shown = [by_layer[layer.name][list(layer.heads)] for layer in heads_of.layers]
        norms.append(torch.cat(shown).float().cpu())
    return torch.stack(norms).mean(0)


def text_loss(model: Model, *inputs: Tensor) -> Float[Tensor, ""]:
    """Return the mean cross entropy of a text under a model, in nats per token.

    A language model predicts each token after the first. A masked language model predicts each
    token at its own position, without masking any.

    Raises:
        UserError: the model doesn't predict tokens, or the text is too short.
    """
    match model:
        case LanguageModel():
            labels = inputs[0]
        case SequenceToSequence():
            labels = inputs[2]
        case MaskedLanguageModel():
            return cross_entropy(model.head(model.body(*inputs)), inputs[0])
        case _:
            raise UserError("gradients need a model that predicts tokens; this one doesn't")
    return cross_entropy(model.head(model.body(*inputs))[:, :-1], labels[:, 1:])


def cross_entropy(
    logits: Float[Tensor, "batch n tokens"], labels: Int[Tensor, "batch n"]
) -> Float[Tensor, ""]:
    """Return the mean cross entropy of labels, in nats.

    Raises:
        UserError: there are no labels.
    """
    if not labels.numel():
        raise UserError("a text of one token has no loss; gradients need a longer one")
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
