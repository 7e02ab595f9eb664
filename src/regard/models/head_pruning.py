"""Removal of attention heads: the configuration and the tensors of a model with fewer heads.

Heads are removed by group: a key/value head, with the query and value heads that share it. In each
tensor of a layer, every group has equally many consecutive channels.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
import torch
from torch import Tensor, nn

from regard.attention.score_config import BigBirdConfig
from regard.config import convert
from regard.errors import UnsupportedError
from regard.models.attention_layers import CrossAttention, SelfAttention
from regard.models.builders import Model
from regard.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    TransformerConfig,
)
from regard.models.pattern import expand, fold
from regard.models.tensors import saved_tensors
from regard.positions.config import BIASES

Kept: TypeAlias = Mapping[str, Sequence[int]]
"""The groups that an attention layer keeps, in their order, by the layer's name in the model."""
Stack = TypeVar("Stack", bound=TransformerConfig)
_SIZES = ("n_heads", "n_kv_heads", "n_value_heads", "head_dim")
_STACKS = {"encoder": "body.encoder.", "decoder": "body.decoder."}


def groups_of(model: Model) -> dict[str, int]:
    """Return the number of groups of each attention layer, by its name in the model."""
    kinds = SelfAttention | CrossAttention
    return {name: m.kv_heads for name, m in model.named_modules() if isinstance(m, kinds)}


def pruned_config(config: ModelConfig, kept: Kept) -> ModelConfig:
    """Return the configuration of a model that keeps these groups.

    Raises:
        UnsupportedError: heads of the model can't be removed one by one.
    """
    if isinstance(config, EncoderDecoderConfig):
        stacks = {name: _pruned(getattr(config, name), kept, at) for name, at in _STACKS.items()}
        return msgspec.structs.replace(config, **stacks)
    if not isinstance(config, DecoderConfig | EncoderConfig):
        kind = config.__struct_config__.tag
        raise UnsupportedError(
            f"model.kind={kind}: has no layers of different numbers of heads; choose a run with "
            "model.kind=decoder, encoder or encoder-decoder"
        )
    return _pruned(config, kept, "body.")


def _pruned(config: Stack, kept: Kept, stack: str) -> Stack:
    """Return the configuration of a stack, with sizes by layer where they differ."""
    _require_separate_heads(config)
    layers = config.layers
    sizes = [
        _sizes(layer, len(kept[f"{stack}layers.{i}.self_attention"]))
        for i, layer in enumerate(layers)
    ]
    values = msgspec.to_builtins(config)
    entries = expand(values["pattern"], config.n_layers)
    own = [
        {name: x for name, x in entry.items() if x is not None and name not in _SIZES}
        for entry in entries
    ]
    if all(one == sizes[0] for one in sizes):
        values |= sizes[0]
    else:
        own = [entry | size for entry, size in zip(own, sizes, strict=True)]
    alike = not any(entry.keys() - {"repeat"} for entry in own)
    values["pattern"] = [] if alike else fold(own)
    return convert(values, type(config), where="pruning")


def _sizes(layer: TransformerConfig, groups: int) -> dict[str, Any]:
    sizes = {"n_heads": layer.n_heads // layer.kv_heads * groups, "head_dim": layer.d_head}
    if layer.n_kv_heads is not None:
        sizes["n_kv_heads"] = groups
    if layer.n_value_heads is not None:
        sizes["n_value_heads"] = layer.n_value_heads // layer.kv_heads * groups
    return sizes


def _require_separate_heads(config: TransformerConfig) -> None:
    """Raise if layers share parameters or values by head, or a head depends on its index."""
    if isinstance(config.positions, BIASES):
        raise UnsupportedError(
            f"positions.kind={config.positions.__struct_config__.tag}: all layers share the "
            "positions that are added to the scores of heads, so no layer can lose heads; set "
            "heads to zero by an edit instead"
        )
    for layer in config.layers:
        if isinstance(layer.attention, BigBirdConfig) and layer.attention.random:
            raise UnsupportedError(
                "attention.kind=bigbird: random blocks depend on the index of a head, which "
                "changes if heads are removed; set heads to zero by an edit instead"
            )
    if any(layer.value_residual for layer in config.layers):
        raise UnsupportedError(
            "value_residual = true: each head mixes in the values of a head of the first layer, so "
            "no layer can lose heads; set heads to zero by an edit instead"
        )


@torch.no_grad()
def copy_kept(old: Model, new: Model, kept: Kept) -> None:
    """Copy the weights of the kept groups to a model of the pruned configuration.

    Raises:
        UnsupportedError: a tensor isn't divided among heads.
    """
    source, groups = saved_tensors(old), groups_of(old)
    for name, tensor in saved_tensors(new).items():
        found = source[name]
        if found.shape != tensor.shape:
            owner = _owner(name)
            layers = old.get_submodule(owner), new.get_submodule(owner)
            widths = [_widths(layer, name.removeprefix(f"{owner}.")) for layer in layers]
            found = _kept_channels(name, found, tensor, widths, (groups[owner], kept[owner]))
        tensor.copy_(found)


def _owner(name: str) -> str:
    """Return the attention layer of a tensor; tables of values belong to one, too."""
    if ".value_embeddings." in name:
        stack, _, rest = name.partition("value_embeddings.")
        return f"{stack}layers.{rest.partition('.')[0]}.self_attention"
    parts = name.split(".")
    (at,) = (i for i, part in enumerate(parts) if part in ("self_attention", "cross_attention"))
    return ".".join(parts[: at + 1])


def _widths(layer: nn.Module, tensor: str) -> list[int] | None:
    """Return the widths of the consecutive parts of a tensor that have channels of each head.

    None stands for one part.
    """
    if isinstance(layer, SelfAttention) and tensor.startswith(("qkv_proj.", "short_conv.")):
        return [n * layer.d_head for n in layer.heads]
    if isinstance(layer, CrossAttention) and tensor.startswith("kv_proj."):
        return [layer.kv_heads * layer.d_head] * 2
    if tensor.startswith("gating.proj."):
        return getattr(layer.gating, "widths", None)
    return None


def _kept_channels(
    name: str,
    old: Tensor,
    new: Tensor,
    widths: Sequence[list[int] | None],
    groups: tuple[int, Sequence[int]],
) -> Tensor:
    """Return the channels of the groups that are kept, along the one dimension that shrinks.

    Raises:
        UnsupportedError: the channels aren't divided among the groups.
    """
    shrunk = [
        i for i, sizes in enumerate(zip(old.shape, new.shape, strict=True)) if len({*sizes}) > 1
    ]
    (n, kept), dim = groups, shrunk[0]
    before, after = widths[0] or [old.shape[dim]], widths[1] or [new.shape[dim]]
    chosen, start = list[Tensor](), 0
    for width, remaining in zip(before, after, strict=True):
        channels = torch.arange(start, start + width, device=old.device)
        if width != remaining and width % n == 0:
            channels = channels.view(n, -1)[list(kept)].flatten()
        chosen.append(channels)
        start += width
    found = old.index_select(dim, torch.cat(chosen))
    if found.shape != new.shape:
        raise UnsupportedError(
            f"{name}: isn't divided among {n} heads; set heads to zero by an edit instead"
        )
    return found
