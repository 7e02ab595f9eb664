"""What stands around attention in a model of our own: where its output goes, and positions."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.explorer.encoding import Encoding
from regard.explorer.maps import Map
from regard.models.layers import CrossAttention, SelfAttention
from regard.models.transformer import Transformer


@torch.no_grad()
def surrounded(one: Map, model: nn.Module) -> Map:
    """A map with what it takes to show positions, and how much each value adds to the output.

    `model` is what was captured.
    """
    layers = tuple(
        replace(layer, projection=_projection(model, layer.captured.layer)) for layer in one.layers
    )
    return replace(one, layers=layers, encoding=_encoding(model, one))


def _projection(model: nn.Module, layer: str) -> Float[Tensor, "d_model heads_e"] | None:
    """The matrix that takes what all heads gathered back to the width of the model."""
    parent = model.get_submodule(layer.rpartition(".")[0])
    known = isinstance(parent, SelfAttention | CrossAttention)
    return parent.project_out.weight.detach() if known else None


def _encoding(model: nn.Module, one: Map) -> Encoding:
    """The positions of the stack that a map's layers are part of."""
    owner, found, rest = one.layers[0].captured.layer.rpartition("layers.")
    stack = model.get_submodule(owner.rstrip(".")) if found else None
    if not (isinstance(stack, Transformer) and "self_attention" in rest):
        return Encoding()
    places = torch.arange(len(one.queries), device=stack.embedding.weight.device)
    turn = None
    if stack.rotary is not None:
        cos, signed_sin = stack.rotary(places[None], torch.float32)
        turn = (cos[0, 0], signed_sin[0, 0])
    return Encoding(None if stack.absolute is None else stack.absolute(places), turn)
