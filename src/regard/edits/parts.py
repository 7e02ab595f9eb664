"""Parts of a hidden state: terms from the embedding, heads, feed-forward layers and biases.

A norm is linear at a fixed scale. With the scale of each norm frozen, the final hidden state is the
sum of its parts (Elhage et al., 2021, "A mathematical framework for transformer circuits"),
computed in float64.

Shapes: n tokens, d = d_model, p parts, h heads of width e.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.norm import RMSNorm, ZeroCenteredRMSNorm
from regard.edits.activations import Recorder
from regard.edits.places import AttentionModule, cross_attention, intercept_places, stacks
from regard.edits.sites import model_sites
from regard.errors import UnsupportedError
from regard.models.builders import Model
from regard.models.layers import Layer
from regard.models.perceiver import PerceiverDecoder
from regard.models.transformer import Transformer

Norm: TypeAlias = nn.LayerNorm | RMSNorm
RECORDED = ("embedding", "residual", "heads", "attention", "cross", "feedforward")


@dataclass(frozen=True, eq=False)
class Parts:
    """The hidden states of a text as sums."""

    names: tuple[str, ...]
    """Names of the parts: sites, and biases named after their sites."""
    values: Float[Tensor, "p n d"]
    whole: Float[Tensor, "n d"]
    """The final hidden states, the input of the model's head."""
    remainder_of_layers: float
    """Largest |Σ heads + bias − output| of an attention layer."""

    @property
    def remainder(self) -> float:
        """Largest |Σ parts − hidden state|."""
        return _largest(self.values.sum(0) - self.whole)

    def add(self, name: str, value: Float[Tensor, "n d"]) -> "Parts":
        """Return the parts with one more."""
        return replace(
            self, names=(*self.names, name), values=torch.cat([self.values, value[None]])
        )

    def normalized(self, norm: Norm, x: Float[Tensor, "n d"], name: str) -> "Parts":
        """Return the parts after a norm at the scale of x; its bias is one more part."""
        after = replace(self, values=hold_scale(norm, x, self.values))
        return after if (bias := _bias(norm)) is None else after.add(name, bias.expand_as(x))


def last_stack(model: Model) -> tuple[str, Transformer]:
    """Return the stack whose hidden states are the input of the head, with its name.

    Raises:
        UnsupportedError: it has no residual stream.
    """
    name, stack = list(stacks(model).items())[-1]
    if not isinstance(stack, Transformer):
        raise UnsupportedError(
            "the hidden states of this model are no sums: it has no residual stream; choose a "
            "decoder, encoder or encoder-decoder"
        )
    return name, stack


def summed_stack(model: Model) -> tuple[str, Transformer]:
    """Return `last_stack` if all of its layers add to the hidden states.

    Raises:
        UnsupportedError: it has no residual stream, or separate ones for tokens and latents.
    """
    name, stack = last_stack(model)
    if isinstance(stack, PerceiverDecoder):
        raise UnsupportedError(
            "the hidden states of a perceiver are no sums of its layers: the last one attends to "
            "latents of the others; measure effects or paths"
        )
    return name, stack


@torch.no_grad()
def parts_of(model: Model, inputs: Sequence[Tensor]) -> Parts:
    """Return the parts of the hidden states of one text, given the inputs of the model's body.

    Raises:
        UnsupportedError: the model has no residual stream, or is a perceiver.
    """
    name, stack = summed_stack(model)
    chosen = [s for s in model_sites(model) if s.part in RECORDED and s.name.startswith(name)]
    recorder = Recorder(chosen)
    with intercept_places(model, recorder.hooks):
        whole = model.body(*inputs)[0].double()
    at = {place: x[0].double() for place, x in recorder.tensors.items()}
    embedding = f"{name}.embedding"
    found = Parts((embedding,), at[embedding][None], whole, 0.0)
    for i, layer in enumerate(stack._layers()):
        found = _with_layer(found, f"{name}.{i}", layer, at)
    if not stack.norm_first:
        return found
    last = at[f"{name}.{len(stack._layers()) - 1}.residual.feedforward"]
    return found.normalized(stack.norm, last, f"{name}.norm.bias")


def _with_layer(found: Parts, place: str, layer: Layer, at: dict[str, Tensor]) -> Parts:
    """Return the parts after a layer, given the recorded tensors by place."""
    before = at[f"{place}.residual"]
    for branch, module, norm, norm_out in _branches(layer):
        site = f"{place}.{branch}"
        if module is None:
            found = found.add(site, at[site])
        else:
            heads = at[f"{place}.cross.heads" if branch == "cross" else f"{place}.heads"]
            new = _heads(module, heads, site, norm_out)
            off = _largest(new.values.sum(0) - at[site])
            found = Parts(
                (*found.names, *new.names),
                torch.cat([found.values, new.values]),
                found.whole,
                max(found.remainder_of_layers, off),
            )
        if not layer.norm_first:
            found = found.normalized(norm, before + at[site], f"{place}.residual.{branch}.bias")
        before = at[f"{place}.residual.{branch}"]
    return found


def _branches(
    layer: Layer,
) -> Iterator[tuple[str, AttentionModule | None, Norm, Norm | None]]:
    """Yield the branches of a layer: name, attention if it is one, and the norms around it."""
    yield "attention", layer.self_attention, layer.norm_attention, layer.norm_attention_out
    if (cross := cross_attention(layer)) is not None:
        yield "cross", cross, layer.norm_cross, layer.norm_cross_out
    yield "feedforward", None, layer.norm_feed_forward, layer.norm_feed_forward_out


def _heads(
    module: AttentionModule, heads: Float[Tensor, "h n e"], site: str, norm: Norm | None
) -> Parts:
    """Return the terms of each head and the bias, after the output projection and `norm`."""
    weight = module.o_proj.weight.double().unflatten(1, (len(heads), -1))
    values = torch.einsum("hne,dhe->hnd", heads, weight)
    owner = site.removesuffix(".attention")
    found = Parts(
        tuple(f"{owner}.heads.{head}" for head in range(len(heads))), values, values[0], 0.0
    )
    if (bias := _bias(module.o_proj)) is not None:
        found = found.add(f"{site}.bias", bias.expand_as(values[0]))
    return (
        found if norm is None else found.normalized(norm, found.values.sum(0), f"{site}.norm.bias")
    )


def hold_scale(
    norm: Norm, x: Float[Tensor, "n d"], parts: Float[Tensor, "p n d"]
) -> Float[Tensor, "p n d"]:
    """Return parts after a norm at the scale of x, without its bias."""
    weight = norm.weight.double()
    if isinstance(norm, nn.LayerNorm):
        x, parts = (y - y.mean(-1, keepdim=True) for y in (x, parts))
    elif isinstance(norm, ZeroCenteredRMSNorm):
        weight = 1 + weight
    eps = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
    return parts * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight


def _bias(module: nn.Module) -> Tensor | None:
    bias: Tensor | None = getattr(module, "bias", None)
    return None if bias is None else bias.double()


def _largest(x: Tensor) -> float:
    return float(x.abs().max())
