"""How a loss depends on each weight of attention: ∂L/∂A[i, j]."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Attention, Mask, State
from regard.errors import UserError
from regard.explorer.capture import AnyBias, from_distances, mechanisms, remembered
from regard.explorer.look import read
from regard.explorer.maps import Map
from regard.models.families import LanguageModel, MaskedLanguageModel, Model, SequenceToSequence
from regard.runs.run import Run


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
    with torch.enable_grad(), _explicit(model) as applied:
        value = loss()
        found = torch.autograd.grad(value, [weights for _, weights in applied], allow_unused=True)
    return [
        Gradient(name, weights.detach(), torch.zeros_like(weights) if grad is None else grad)
        for (name, weights), grad in zip(applied, found, strict=True)
    ]


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
    if not labels.numel():
        raise UserError("a text of one token has no loss; gradients need a longer one")
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def gradient_norms(run: Run, texts: Sequence[str], heads_of: Map) -> Float[Tensor, " heads"]:
    """The length of ∂L/∂A of the heads that a map shows, layer by layer, averaged over texts.

    Raises:
        UserError: a text can't be read, or has no loss.
    """
    norms = []
    for text in texts:
        inputs, *_ = read(run, text)
        found = attention_gradients(run.model.body, partial(text_loss, run.model, *inputs))
        by_layer = {one.layer: one.norm[0] for one in found}
        shown = [by_layer[one.captured.layer][list(one.heads)] for one in heads_of.layers]
        norms.append(torch.cat(shown).float().cpu())
    return torch.stack(norms).mean(0)


@contextmanager
def _explicit(model: nn.Module) -> Iterator[list[tuple[str, Tensor]]]:
    """In the with block, each output is made of a matrix of weights, which is noted here."""
    applied: list[tuple[str, Tensor]] = []
    with ExitStack() as replaced:
        for name, module in mechanisms(model):
            replaced.enter_context(_replaced(name, module, applied))
        yield applied


@contextmanager
def _replaced(name: str, module: Attention, applied: list[tuple[str, Tensor]]) -> Iterator[None]:
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
        if not weights.requires_grad:
            weights.requires_grad_()
        applied.append((name, weights))
        value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        out = weights @ value.to(weights.dtype) + from_distances(weights, mask, bias)
        return out.to(value.dtype)

    with remembered(module) as made_of:

        def reading(query: Tensor, memory: State) -> Tensor:
            key, value, mask = made_of(memory)
            return forward(query, key, value, mask=mask)

        vars(module).update(forward=forward, read=reading)
        try:
            yield
        finally:
            del vars(module)["forward"], module.read
