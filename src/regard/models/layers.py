"""The layers of a Transformer: attention around a mechanism, and the residual branches.

Shapes: b rows, n tokens, d = d_model.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention import AnyBias, LayerShape, Mask, State
from regard.attention.base import product_dtype
from regard.attention.config import locate
from regard.attention.gates import NO_GATES, Gates
from regard.attention.gating import Gated
from regard.attention.norm import RMSNorm, ZeroCenteredRMSNorm
from regard.attention.state import last_real
from regard.dropout import Dropout
from regard.models.config import CROSS, PerceiverConfig, TargetConfig, TransformerConfig
from regard.models.feed_forward import FeedForward
from regard.models.shared_values import SharedValues, ValueMixture
from regard.models.short_convolution import ConvolvedState, make_qkv_convolution
from regard.models.tensors import (
    Heads,
    Hidden,
    Lengths,
    Rope,
    TokenMask,
    heads_of,
    join_heads,
    rotate_heads,
    split_heads,
)

Attend: TypeAlias = Callable[..., tuple[Heads, State]]
"""`extend` or `extend_last` of a mechanism."""


def shape_of(config: TransformerConfig, layer: int) -> LayerShape:
    """Return the sizes of a layer for its mechanism; torch's seed decides draws."""
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


class SelfAttention(nn.Module):
    """Projections to queries, keys and values around an attention mechanism."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, self.d_head = config.n_heads, config.kv_heads, config.d_head
        self.window_size = config.window_size
        self.make_projections(config)
        shape = shape_of(config, layer)
        self.attention = config.attention.build(shape)
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
        """The state before the first token."""
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
    ) -> tuple[Heads, State]:
        """Return causal attention of new tokens to themselves and to all earlier ones, by head."""
        return self._extend(self.attention.extend, x, rope, bias, state, attention_mask, values)

    def extend_last(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: TokenMask | None,
        values: SharedValues | None = None,
    ) -> tuple[Float[Tensor, "b heads 1 d_head"], State]:
        """Extend the state as `extend`; return only the outputs of each row's last real token."""
        return self._extend(
            self.attention.extend_last, x, rope, bias, state, attention_mask, values
        )

    def _project(self, x: Tensor, mask: Mask | None = None) -> Tensor:
        """Return queries, keys and values of all heads, concatenated."""
        projected: Tensor = self.qkv_proj(x)
        return projected

    def _extend(
        self,
        attend: Attend,
        x: Tensor,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: Tensor | None,
        values: SharedValues | None,
    ) -> tuple[Tensor, State]:
        query, key, value, gates = self._inputs(x, self.qkv_proj(x), rope, values)
        return attend(
            query, key, value, state, attention_mask=attention_mask, bias=bias, gates=gates
        )

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
        gated: Gated = self.gating(x, query, key, value)
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

    def _project(self, x: Tensor, mask: Mask | None = None) -> Tensor:
        document_ids = None if mask is None else mask.document_ids
        projected: Tensor = self.short_conv(super()._project(x), document_ids)
        return projected

    def init_state(self, batch: int, capacity: int) -> ConvolvedState:
        """The state before the first token."""
        before = self.short_conv.first_inputs(batch, product_dtype(self.qkv_proj.weight))
        return ConvolvedState(super().init_state(batch, capacity), [before])

    def _extend(
        self,
        attend: Attend,
        x: Tensor,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: Tensor | None,
        values: SharedValues | None,
    ) -> tuple[Tensor, State]:
        assert isinstance(state, ConvolvedState)
        projected: Tensor = self.qkv_proj(x)
        convolved, before = self.short_conv.extend(projected, state.before[0], attention_mask)
        query, key, value, gates = self._inputs(x, convolved, rope, values)
        out, attention = attend(
            query,
            key,
            value,
            state.attention,
            attention_mask=attention_mask,
            bias=bias,
            gates=gates,
        )
        return out, ConvolvedState(attention, [before])


class CrossAttention(nn.Module):
    """Attention with keys and values from another sequence, which may have another width."""

    def __init__(self, config: TargetConfig | PerceiverConfig, layer: int, d_source: int) -> None:
        """Build the projections of a layer, and its mechanism.

        Raises:
            UnsupportedError: the mechanism does not support cross-attention or padding masks.
        """
        super().__init__()
        config.cross.require_support(*CROSS)
        self.kv_heads, self.d_head = config.kv_heads, config.d_head
        heads_width, kv_width = (n * config.d_head for n in (config.n_heads, config.kv_heads))
        self.q_proj = nn.Linear(config.d_model, heads_width, bias=config.qkv_bias)
        self.kv_proj = nn.Linear(d_source, 2 * kv_width, bias=config.qkv_bias)
        shape = shape_of(config, layer)
        self.attention = config.cross.build(shape)
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


class CheckpointedModule(nn.Module):
    """A module that may recompute its activations in the backward pass (Chen et al., 2016)."""

    gradient_checkpointing = False
    sets_values = False
    """Whether a call sets more than its output, so that it isn't repeated."""

    def __call__(self, *args: Any) -> Any:
        """Call `forward`; in training, keep only its inputs if `gradient_checkpointing` is set."""
        recomputes = self.gradient_checkpointing and not self.sets_values
        if recomputes and self.training and torch.is_grad_enabled():
            return checkpoint(super().__call__, *args, use_reentrant=False)
        return super().__call__(*args)


class Layer(CheckpointedModule):
    """Self-attention, attention to a source if there is one, and feed-forward: each a branch.

    The norm of a branch comes before it, x + f(norm(x)) (Radford et al., 2019), or after the sum,
    norm(x + f(x)) (Vaswani et al., 2017). A sandwich has one before and one after it,
    x + norm'(f(norm(x))) (Ding et al., 2021, §2.2). In parallel, both branches read the same x,
    x + f(norm(x)) + g(norm'(x)) (Black et al., 2022, §2.1).
    """

    def __init__(self, config: TransformerConfig, layer: int, d_source: int | None = None) -> None:
        super().__init__()
        self.norm_first, self.parallel = config.norm != "post", config.parallel_residual
        after = make_norm if config.norm == "sandwich" else lambda _: None
        self.norm_attention, self.norm_attention_out = make_norm(config), after(config)
        self.dropout_attention = Dropout(config.dropout)
        self.self_attention = _self_attention(config)(config, layer)
        if d_source is not None:
            assert isinstance(config, TargetConfig)
            self.norm_cross, self.norm_cross_out = make_norm(config), after(config)
            self.dropout_cross = Dropout(config.dropout)
            self.cross_attention = CrossAttention(config, layer, d_source)
        self.norm_feed_forward, self.norm_feed_forward_out = make_norm(config), after(config)
        self.dropout_feed_forward = Dropout(config.dropout)
        self.feed_forward = FeedForward(config)

    def init_state(self, batch: int, capacity: int) -> State:
        """The state before the first token."""
        return self.self_attention.init_state(batch, capacity)

    def forward(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        mask: Mask | None,
        memory: State | None = None,
        values: SharedValues | None = None,
    ) -> Hidden:
        """Return the output of whole rows; cross-attention attends to `memory`.

        `values` are mixed with those of self-attention, here and in decoding.
        """
        attended = self.self_attention(
            self._before(self.norm_attention, x), rope, bias, mask, values
        )
        return self._rest(x, attended, memory)

    def extend(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: TokenMask | None,
        memory: State | None = None,
        values: SharedValues | None = None,
    ) -> tuple[Hidden, State]:
        """Return the output of new tokens, and the state with them."""
        read = self._before(self.norm_attention, x)
        out, state = self.self_attention.extend(read, rope, bias, state, attention_mask, values)
        return self._rest(x, self.self_attention.finish(read, out), memory), state

    def extend_last(
        self,
        x: Hidden,
        rope: Rope | None,
        bias: AnyBias | None,
        state: State,
        attention_mask: TokenMask | None,
        memory: State | None = None,
        values: SharedValues | None = None,
    ) -> tuple[Float[Tensor, "b 1 d"], State]:
        """Extend the state as `extend`; return only each row's last real token."""
        read = self._before(self.norm_attention, x)
        out, state = self.self_attention.extend_last(
            read, rope, bias, state, attention_mask, values
        )
        x, read = last_real(x, attention_mask), last_real(read, attention_mask)
        return self._rest(x, self.self_attention.finish(read, out), memory), state

    def _rest(self, x: Tensor, attended: Tensor, memory: State | None) -> Tensor:
        """Return the stream after self-attention and the following branches."""
        read, x = self._after_attention(x, attended, memory)
        return self._add_fed(x, self.feed_forward(read))

    def _after_attention(
        self, x: Tensor, attended: Tensor, memory: State | None
    ) -> tuple[Tensor, Tensor]:
        """Return the input of the feed-forward layer, and the stream that it is added to."""
        attended = _after(self.norm_attention_out, attended)
        before, x = x, self._add(self.norm_attention, x, self.dropout_attention, attended)
        if memory is not None:
            read = self.cross_attention(self._before(self.norm_cross, x), memory)
            read = _after(self.norm_cross_out, read)
            x = self._add(self.norm_cross, x, self.dropout_cross, read)
        return self._before(self.norm_feed_forward, before if self.parallel else x), x

    def _add_fed(self, x: Tensor, fed: Tensor) -> Tensor:
        """Return the stream plus the output of the feed-forward layer."""
        fed = _after(self.norm_feed_forward_out, fed)
        return self._add(self.norm_feed_forward, x, self.dropout_feed_forward, fed)

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        """Return the input of a branch."""
        read: Tensor = norm(x) if self.norm_first else x
        return read

    def _add(self, norm: nn.Module, x: Tensor, dropout: Dropout, branch: Tensor) -> Tensor:
        """Return the stream plus the output of a branch."""
        summed: Tensor = x + (dropout(branch) if self.training else branch)
        return summed if self.norm_first else norm(summed)


def _after(norm: nn.Module | None, branch: Tensor) -> Tensor:
    """Return the output of a branch, normalized in a sandwich."""
    normalized: Tensor = branch if norm is None else norm(branch)
    return normalized


def _self_attention(config: TransformerConfig) -> type[SelfAttention]:
    """Return the class of the self-attention of a layer."""
    if config.attention.layer:
        found: type[SelfAttention] = locate(config.attention.layer)
        return found
    return ConvolvedSelfAttention if config.convolves_qkv else SelfAttention


def length_mask(lengths: Lengths | None) -> Mask | None:
    """Return the mask of the padding at the ends of rows."""
    return None if lengths is None else Mask.lengths(lengths)


def make_norm(config: TransformerConfig) -> nn.LayerNorm | RMSNorm:
    """Build a norm of the residual stream (Ba et al., 2016; Zhang & Sennrich, 2019)."""
    return _NORMS[config.norm_type](config.d_model, eps=config.norm_eps)


_NORMS: dict[str, type[nn.LayerNorm | RMSNorm]] = {
    "layer-norm": nn.LayerNorm,
    "rms-norm": RMSNorm,
    "zero-centered-rms-norm": ZeroCenteredRMSNorm,
}
