"""The layers of a Transformer: attention around a mechanism, and a feed-forward layer.

Shapes: b rows, n tokens, d = d_model.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Bias, Mask, RelativeVectors, State
from regard.models.attention import make_attention
from regard.models.config import TransformerConfig
from regard.models.convolution import ConvolvedState, ShortConvolution
from regard.positions import rotate

Turn: TypeAlias = tuple[Tensor, Tensor]
"""Cosines and sines of rotary positions."""

AnyBias: TypeAlias = Bias | RelativeVectors
"""What relative positions add to scores, or to keys and values."""


class SelfAttention(nn.Module):
    """Projections to queries, keys and values around an attention mechanism."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.n_heads, self.kv_heads, self.d_head = config.n_heads, config.kv_heads, config.d_head
        self.project_in = nn.Linear(
            config.d_model, (config.n_heads + 2 * config.kv_heads) * config.d_head
        )
        self.attention = make_attention(config, layer)
        self.project_out = nn.Linear(config.n_heads * config.d_head, config.d_model)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        turn: Turn | None,
        bias: AnyBias | None,
        mask: Mask | None,
    ) -> Float[Tensor, "b n d"]:
        """Attention of whole rows to themselves."""
        query, key, value = self._split(self._project(x), turn)
        return _join(self.attention(query, key, value, mask=mask, bias=bias), self.project_out)

    def start(self, batch: int, capacity: int) -> State:
        """The state before the first token."""
        weight = self.project_in.weight
        d = self.d_head
        return self.attention.start(
            batch, self.kv_heads, d, d, capacity=capacity, device=weight.device, dtype=weight.dtype
        )

    def extend(
        self,
        x: Float[Tensor, "b n d"],
        turn: Turn | None,
        bias: AnyBias | None,
        state: State,
        keep: Bool[Tensor, "b n"] | None,
    ) -> tuple[Float[Tensor, "b n d"], State]:
        """Causal attention of new tokens to themselves and to all that came before."""
        return self._grow(self._project(x), turn, bias, state, keep)

    def _project(self, x: Tensor) -> Tensor:
        """Queries, keys and values of all heads, side by side."""
        projected: Tensor = self.project_in(x)
        return projected

    def _grow(
        self,
        projected: Tensor,
        turn: Turn | None,
        bias: AnyBias | None,
        state: State,
        keep: Tensor | None,
    ) -> tuple[Tensor, State]:
        query, key, value = self._split(projected, turn)
        out, state = self.attention.extend(query, key, value, state, keep=keep, bias=bias)
        return _join(out, self.project_out), state

    def _split(self, projected: Tensor, turn: Turn | None) -> tuple[Tensor, Tensor, Tensor]:
        heads = _heads(projected, self.d_head)
        query_key, value = heads.split([self.n_heads + self.kv_heads, self.kv_heads], dim=1)
        if turn is not None:
            query_key = rotate(query_key, turn)
        query, key = query_key.split([self.n_heads, self.kv_heads], dim=1)
        return query, key, value


class ConvolvedSelfAttention(SelfAttention):
    """Self-attention with a short convolution of what its inputs are projected to."""

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.convolution = ShortConvolution(self.project_in.out_features, config.convolution)

    def _project(self, x: Tensor) -> Tensor:
        projected: Tensor = self.convolution(super()._project(x))
        return projected

    def start(self, batch: int, capacity: int) -> ConvolvedState:
        """The state before the first token."""
        weight = self.project_in.weight
        before = weight.new_zeros(batch, self.convolution.reach, len(weight))
        return ConvolvedState(super().start(batch, capacity), before)

    def extend(
        self,
        x: Float[Tensor, "b n d"],
        turn: Turn | None,
        bias: AnyBias | None,
        state: State,
        keep: Bool[Tensor, "b n"] | None,
    ) -> tuple[Float[Tensor, "b n d"], ConvolvedState]:
        """Causal attention of new tokens to themselves and to all that came before."""
        assert isinstance(state, ConvolvedState)
        convolved, before = self.convolution.extend(super()._project(x), state.before, keep)
        out, attention = self._grow(convolved, turn, bias, state.attention, keep)
        return out, ConvolvedState(attention, before)


class CrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another, which may be of another width."""

    def __init__(self, config: TransformerConfig, layer: int, d_source: int) -> None:
        """The projections of a layer, and its mechanism.

        Raises:
            UnsupportedError: the mechanism can't look at another sequence, or leave out padding.
        """
        super().__init__()
        self.kv_heads, self.d_head = config.kv_heads, config.d_head
        self.project_query = nn.Linear(config.d_model, config.n_heads * config.d_head)
        self.project_source = nn.Linear(d_source, 2 * config.kv_heads * config.d_head)
        self.attention = make_attention(config, layer)
        self.attention.require_abilities("cross", "key_lengths")
        self.project_out = nn.Linear(config.n_heads * config.d_head, config.d_model)

    def remember(
        self, source: Float[Tensor, "b m d_source"], lengths: Int[Tensor, " b"] | None
    ) -> State:
        """The source as this layer looks at it."""
        heads = _heads(self.project_source(source), self.d_head)
        key, value = heads.split(self.kv_heads, dim=1)
        return self.attention.memory(key, value, mask=length_mask(lengths))

    def forward(self, x: Float[Tensor, "b n d"], memory: State) -> Float[Tensor, "b n d"]:
        """Attention to a source that is remembered."""
        query = _heads(self.project_query(x), self.d_head)
        return _join(self.attention.read(query, memory), self.project_out)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        d_ff = config.d_ff or 4 * config.d_model
        self.widen = nn.Linear(config.d_model, d_ff)
        self.activation = _ACTIVATIONS[config.activation]
        self.narrow = nn.Linear(d_ff, config.d_model)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        narrowed: Tensor = self.narrow(self.activation(self.widen(x)))
        return narrowed


def _gelu_tanh(x: Tensor) -> Tensor:
    """Hendrycks & Gimpel, 2016, §2, the approximation."""
    return F.gelu(x, approximate="tanh")


def _squared_relu(x: Tensor) -> Tensor:
    """So et al., 2021, "Primer"."""
    return F.relu(x).square()


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu-tanh": _gelu_tanh,
    "relu": F.relu,
    "relu2": _squared_relu,
}


class Layer(nn.Module):
    """Self-attention, attention to a source if there is one, and feed-forward: each a branch.

    The norm of a branch comes before it, x + f(norm(x)) (Radford et al., 2019), or after the sum,
    norm(x + f(x)) (Vaswani et al., 2017).
    """

    def __init__(self, config: TransformerConfig, layer: int, d_source: int | None = None) -> None:
        super().__init__()
        self.norm_first = config.norm == "pre"
        self.norm_attention = _norm(config)
        kind = ConvolvedSelfAttention if config.convolution else SelfAttention
        self.self_attention = kind(config, layer)
        if d_source is not None:
            self.norm_cross = _norm(config)
            self.cross_attention = CrossAttention(config, layer, d_source)
        self.norm_feed_forward = _norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        turn: Turn | None,
        bias: AnyBias | None,
        mask: Mask | None,
        memory: State | None = None,
    ) -> Float[Tensor, "b n d"]:
        """Whole rows; `memory` is what the layer's cross-attention looks at."""
        attended = self.self_attention(self._before(self.norm_attention, x), turn, bias, mask)
        return self._rest(self._add(self.norm_attention, x, attended), memory)

    def extend(
        self,
        x: Float[Tensor, "b n d"],
        turn: Turn | None,
        bias: AnyBias | None,
        state: State,
        keep: Bool[Tensor, "b n"] | None,
        memory: State | None = None,
    ) -> tuple[Float[Tensor, "b n d"], State]:
        """New tokens, after all that the state has seen."""
        attended, state = self.self_attention.extend(
            self._before(self.norm_attention, x), turn, bias, state, keep
        )
        return self._rest(self._add(self.norm_attention, x, attended), memory), state

    def _rest(self, x: Tensor, memory: State | None) -> Tensor:
        if memory is not None:
            read = self.cross_attention(self._before(self.norm_cross, x), memory)
            x = self._add(self.norm_cross, x, read)
        fed = self.feed_forward(self._before(self.norm_feed_forward, x))
        return self._add(self.norm_feed_forward, x, fed)

    def _before(self, norm: nn.Module, x: Tensor) -> Tensor:
        """What a branch reads."""
        read: Tensor = norm(x) if self.norm_first else x
        return read

    def _add(self, norm: nn.Module, x: Tensor, branch: Tensor) -> Tensor:
        """The stream with what a branch adds to it."""
        summed: Tensor = x + self.dropout(branch)
        return summed if self.norm_first else norm(summed)


def length_mask(lengths: Int[Tensor, " b"] | None) -> Mask | None:
    """Leaves out the padding at the ends of rows."""
    return None if lengths is None else Mask.lengths(lengths)


def _norm(config: TransformerConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_eps)


def _heads(x: Tensor, d_head: int) -> Float[Tensor, "b heads n d_head"]:
    heads: Tensor = x.unflatten(-1, (-1, d_head)).transpose(1, 2)
    return heads


def _join(heads: Float[Tensor, "b heads n d_head"], project: nn.Module) -> Float[Tensor, "b n d"]:
    joined: Tensor = project(heads.transpose(1, 2).flatten(2))
    return joined
