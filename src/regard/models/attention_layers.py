"""Self-attention and cross-attention of a layer: projections around a mechanism, and shared values.

Shapes: b rows, n tokens, d = d_model, e the width of a value.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import AnyBias, LayerShape, Mask, State
from regard.attention.base import product_dtype
from regard.attention.config import locate
from regard.attention.gates import NO_GATES, Gates
from regard.attention.gating import Gated
from regard.attention.norm import RMSNorm, ZeroCenteredRMSNorm
from regard.models.config import CROSS, PerceiverConfig, TargetConfig, TransformerConfig
from regard.models.short_convolution import ConvolvedState, make_qkv_convolution
from regard.models.tensors import (
    Heads,
    Hidden,
    Rope,
    TokenIds,
    TokenMask,
    heads_of,
    join_heads,
    rotate_heads,
    split_heads,
)

Attend: TypeAlias = Callable[..., tuple[Heads, State]]
"""`extend` of a mechanism, with its mask and bias."""


def shape_of(config: TransformerConfig, layer: int) -> LayerShape:
    """Return the sizes of a layer for its mechanism, which draws random numbers by torch's seed."""
    return LayerShape(
        n_heads=config.n_heads,
        n_kv_heads=config.kv_heads,
        n_value_heads=config.value_heads,
        d_head=config.d_head,
        context_length=config.context_length,
        layer=layer,
        seed=torch.initial_seed(),
        dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
    )


# Additional values: residuals from the first layer, and embeddings of tokens


class SharedValues:
    """Value embeddings and the first layer's values, shared by the layers of a forward pass.

    Not a dataclass: FSDP passes copies of dataclasses to each layer, and `first` would be lost.
    """

    first: Float[Tensor, "b value_heads n e"]
    """Values of the first layer, which sets them."""

    def __init__(self, added: Sequence[Float[Tensor, "b n value_heads*e"] | None]) -> None:
        """`added` has the value embeddings of each layer; None for layers without a table."""
        self.added = added


class ValueMixture(nn.Module):
    """v_l ← λ_1 v_1 + λ_2 v_l + E_l[t]: a value residual, a value embedding, or both.

    λ_1 v_1 + λ_2 v_l is the value residual of ResFormer (Zhou et al., 2024, arXiv:2410.17897, with
    learned λ, initialized to ½), E_l[t] the value embedding. Layer 0 sets v_1, without embedding.
    """

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        """Build the weights λ of a layer."""
        super().__init__()
        self.layer = layer
        mixes = config.value_residual and layer > 0
        self.weights = nn.Parameter(torch.full((2,), 0.5)) if mixes else None

    def forward(
        self, value: Float[Tensor, "b value_heads n e"], shared: SharedValues
    ) -> Float[Tensor, "b value_heads n e"]:
        """Return the values of a layer with residual and embedding."""
        if self.layer == 0:
            shared.first = value
        if self.weights is not None:
            value = self.weights[0] * shared.first + self.weights[1] * value
        added = shared.added[self.layer]
        if added is None:
            return value
        b, heads, n, e = value.shape
        return value + added.to(value.dtype).view(b, n, heads, e).transpose(1, 2)


class ValueEmbeddings(nn.ModuleDict):
    """Tables of values by token, by the index of the layer, for layers that have one.

    As in Jordan et al., 2024, "modded-nanogpt".
    """

    def __init__(self, layers: Sequence[TransformerConfig], vocabulary: int) -> None:
        """Build the tables of the layers with `value_embedding`."""
        widths = {str(i): one.value_heads * one.d_head for i, one in enumerate(layers)}
        own = (str(i) for i, one in enumerate(layers) if one.value_embedding)
        super().__init__({name: nn.Embedding(vocabulary, widths[name]) for name in own})
        self.layers = list(widths)

    def forward(self, input_ids: TokenIds) -> SharedValues:
        """Return the value embeddings of the tokens for each layer."""
        return SharedValues([self[i](input_ids) if i in self else None for i in self.layers])


# Attention


class SelfAttention(nn.Module):
    """Projections to queries, keys and values around an attention mechanism."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, self.d_head = config.n_heads, config.kv_heads, config.d_head
        self.window_size = config.window_size
        self.make_projections(config)
        shape = shape_of(config, layer)
        queries = config.attention.queries_per_head
        self.attention = config.attention.build_for(shape, queries=queries)
        gates = self.attention.gates
        self.gating = config.attention.build_gating(gates, config.d_model, shape)
        self.o_proj = nn.Linear(config.d_attention, config.d_model, bias=config.o_bias)
        self.mixture = ValueMixture(config, layer)

    def make_projections(self, config: TransformerConfig) -> None:
        """Create the projections to queries, keys and values."""
        queries = config.n_heads * config.attention.queries_per_head
        keys = config.kv_heads if config.attention.has_keys else 0
        self.heads = [queries, keys, config.value_heads]
        self.rotary_parts = config.d_head // config.rotary_width
        self.qkv_proj = nn.Linear(
            config.d_model, sum(self.heads) * config.d_head, bias=config.qkv_bias
        )
        centered = config.norm_type == "zero-centered-rms-norm"
        norm = ZeroCenteredRMSNorm if centered else RMSNorm
        self.q_norm, self.k_norm = (
            norm(config.d_head, eps=config.norm_eps) if config.qk_norm else None for _ in range(2)
        )

    def forward(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        mask: Mask | None,
        values: SharedValues | None = None,
    ) -> Hidden:
        """Return self-attention of whole rows; `values` are mixed with those of the layer."""
        query, key, value, gates = self._inputs(x, self._project(x, mask), rope, values)
        if self.window_size is not None:
            mask = (mask or Mask()).within(self.window_size)
        out = self.attention(query, key, value, mask=mask, bias=bias, gates=gates)
        return self.finish(x, out)

    def init_state(self, batch: int, capacity: int) -> State:
        """Return the empty decoding state."""
        weight, d = self.qkv_proj.weight, self.d_head
        return self.attention.init_state(
            batch,
            self.heads[2],
            d if self.heads[1] else 0,
            d,
            capacity=capacity,
            device=weight.device,
            dtype=product_dtype(weight),
            window_size=self.window_size,
        )

    def extend(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: TokenMask | None,
        values: SharedValues | None = None,
        *,
        last: bool = False,
    ) -> tuple[Heads, State]:
        """Return causal attention of new tokens to themselves and to all earlier ones, by head.

        With `last`, only the outputs of each row's last real token are returned.
        """
        attend = partial(self.attention.extend, attention_mask=attention_mask, bias=bias, last=last)
        return self._extend(attend, x, rope, state, attention_mask, values)

    def _project(self, x: Tensor, mask: Mask | None) -> Tensor:
        """Return queries, keys and values of all heads, concatenated."""
        projected: Tensor = self.qkv_proj(x)
        return projected

    def _extend(
        self,
        attend: Attend,
        x: Tensor,
        rope: Rope | None,
        state: State,
        attention_mask: Tensor | None,
        values: SharedValues | None,
    ) -> tuple[Tensor, State]:
        query, key, value, gates = self._inputs(x, self.qkv_proj(x), rope, values)
        return attend(query, key, value, state, gates=gates)

    def finish(self, x: Hidden, out: Heads) -> Hidden:
        """Return the projected outputs of all heads, in the shape of the input."""
        out = out if self.gating is None else self.gating.finish(x, out)
        projected: Tensor = self.o_proj(join_heads(out))
        return projected

    def _inputs(
        self, x: Tensor, projected: Tensor, rope: Rope | None, values: SharedValues | None
    ) -> tuple[Tensor, Tensor, Tensor, Gates]:
        """Return queries, keys, values and gates of the mechanism."""
        sizes = self.heads
        if self.gating is None and self.q_norm is None and rope is None:
            query, key, value = split_heads(projected, sizes, self.d_head)
            value = value if values is None else self.mixture(value, values)
            return *self._complete(query, key), value, NO_GATES
        heads = heads_of(projected, self.d_head)
        if self.gating is not None:
            heads = self.gating.activate(heads)
        both, value = heads.split_with_sizes([sizes[0] + sizes[1], sizes[2]], 1)
        value = value if values is None else self.mixture(value, values)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = both.split_with_sizes(sizes[:2], 1)
            both = torch.cat([self.q_norm(query), self.k_norm(key)], 1)
        if self.gating is not None:
            both = self.gating.normalize(both)
        if rope is not None:
            both = rotate_heads(both, rope, self.rotary_parts)
        query, key = self._complete(*both.split_with_sizes(sizes[:2], 1))
        if self.gating is None:
            return query, key, value, NO_GATES
        gated: Gated = self.gating.inputs(x, query, key, value)
        return gated

    def _complete(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys, of width 0 where the mechanism has none."""
        if not self.heads[0]:
            query = query.new_empty(len(query), self.n_heads, query.size(2), 0)
        if not self.heads[1]:
            key = key.new_empty(len(key), self.kv_heads, key.size(2), 0)
        return query, key


class ConvolvedSelfAttention(SelfAttention):
    """Self-attention with a short convolution of queries, keys and values."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.short_conv = make_qkv_convolution(self.qkv_proj.out_features, config)

    def _project(self, x: Tensor, mask: Mask | None) -> Tensor:
        document_ids = None if mask is None else mask.document_ids
        projected: Tensor = self.short_conv(self.qkv_proj(x), document_ids)
        return projected

    def init_state(self, batch: int, capacity: int) -> ConvolvedState:
        """Return the empty decoding state."""
        before = self.short_conv.first_inputs(batch, product_dtype(self.qkv_proj.weight))
        return ConvolvedState(super().init_state(batch, capacity), [before])

    def _extend(
        self,
        attend: Attend,
        x: Tensor,
        rope: Rope | None,
        state: State,
        attention_mask: Tensor | None,
        values: SharedValues | None,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, ConvolvedState)
        projected: Tensor = self.qkv_proj(x)
        convolved, before = self.short_conv.extend(projected, state.before[0], attention_mask)
        query, key, value, gates = self._inputs(x, convolved, rope, values)
        out, attention = attend(query, key, value, state.attention, gates=gates)
        return out, ConvolvedState(attention, [before])


class CrossAttention(nn.Module):
    """Attention with keys and values from another sequence, which may have another width."""

    def __init__(
        self, config: TargetConfig | PerceiverConfig, layer: int, source: TransformerConfig
    ) -> None:
        """Build the projections of a layer, and its mechanism, which reads what `source` returns.

        Raises:
            UnsupportedError: the mechanism does not support cross-attention or padding masks.
        """
        super().__init__()
        config.cross.require_support(*CROSS)
        self.kv_heads, self.d_head = config.kv_heads, config.d_head
        heads_width, kv_width = (n * config.d_head for n in (config.n_heads, config.kv_heads))
        self.q_proj = nn.Linear(config.d_model, heads_width, bias=config.qkv_bias)
        self.kv_proj = nn.Linear(source.d_model, 2 * kv_width, bias=config.qkv_bias)
        shape = replace(shape_of(config, layer), context_length=source.context_length)
        self.attention = config.cross.build_for(shape, queries=1)
        self.gating = config.cross.build_gating((), config.d_model, shape)
        self.o_proj = nn.Linear(heads_width, config.d_model, bias=config.o_bias)

    def encode_memory(self, source: Float[Tensor, "b m d_source"], mask: Mask | None) -> State:
        """Encode the keys and values of a source; all layers share the mask of its padding."""
        return self.attention.encode_memory(*self.keys_and_values(source), mask=mask)

    def forward(self, x: Hidden, memory: State) -> Hidden:
        """Return the attention to an encoded source."""
        return self.finish(x, self.attention.attend_memory(self.queries(x), memory))

    def queries(self, x: Hidden) -> Heads:
        """Return the queries of all heads."""
        return heads_of(self.q_proj(x), self.d_head)

    def keys_and_values(self, source: Float[Tensor, "b m d_source"]) -> tuple[Heads, Heads]:
        """Return the keys and values of all heads."""
        sizes = [self.kv_heads, self.kv_heads]
        key, value = split_heads(self.kv_proj(source), sizes, self.d_head)
        return key, value

    def finish(self, x: Hidden, out: Heads) -> Hidden:
        """Return the projected outputs of all heads, in the shape of the input."""
        out = out if self.gating is None else self.gating.finish(x, out)
        projected: Tensor = self.o_proj(join_heads(out))
        return projected


def self_attention_class(config: TransformerConfig) -> type[SelfAttention]:
    """Return the class of the self-attention of a layer."""
    if config.attention.layer:
        found: type[SelfAttention] = locate(config.attention.layer)
        return found
    return ConvolvedSelfAttention if config.convolves_qkv else SelfAttention
