"""The Transformer decoder, from attention, positions and feed-forward layers.

Pre-layer normalisation throughout (Radford et al., 2019). Shapes: b rows, n tokens, d = d_model.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Bias, Mask, RelativeVectors, State
from regard.models.attention import make_attention
from regard.models.config import ModelConfig
from regard.models.positions import make_absolute, make_bias, make_rotary
from regard.positions import rotate

Turn: TypeAlias = tuple[Tensor, Tensor]
"""Cosines and sines of rotary positions."""

AnyBias: TypeAlias = Bias | RelativeVectors
"""What relative positions add to scores, or to keys and values."""

States: TypeAlias = list[State]
"""What a model remembers: one state a layer."""


class SelfAttention(nn.Module):
    """Projections to queries, keys and values around an attention mechanism."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        """The projections of a layer, and its mechanism.

        Raises:
            UnsupportedError: the mechanism can't be causal, decode, or take the position encoding.
        """
        super().__init__()
        self.n_heads, self.kv_heads, self.d_head = config.n_heads, config.kv_heads, config.d_head
        self.project_in = nn.Linear(
            config.d_model, (config.n_heads + 2 * config.kv_heads) * config.d_head
        )
        self.attention = make_attention(config, layer)
        self.attention.require_abilities("alignment", "decoding")
        self.project_out = nn.Linear(config.n_heads * config.d_head, config.d_model)

    def forward(
        self, x: Float[Tensor, "b n d"], turn: Turn | None, bias: AnyBias | None
    ) -> Float[Tensor, "b n d"]:
        """Causal self-attention of whole rows."""
        query, key, value = self._project(x, turn)
        return self._join(self.attention(query, key, value, mask=Mask.causal(), bias=bias))

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
        """Causal self-attention of new tokens to all that came before."""
        query, key, value = self._project(x, turn)
        out, state = self.attention.extend(query, key, value, state, keep=keep, bias=bias)
        return self._join(out), state

    def _project(self, x: Tensor, turn: Turn | None) -> tuple[Tensor, Tensor, Tensor]:
        heads = self.project_in(x).unflatten(-1, (-1, self.d_head)).transpose(1, 2)
        query_key, value = heads.split([self.n_heads + self.kv_heads, self.kv_heads], dim=1)
        if turn is not None:
            query_key = rotate(query_key, turn)
        query, key = query_key.split([self.n_heads, self.kv_heads], dim=1)
        return query, key, value

    def _join(self, heads: Float[Tensor, "b heads n d_head"]) -> Float[Tensor, "b n d"]:
        joined: Tensor = self.project_out(heads.transpose(1, 2).flatten(2))
        return joined


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d_ff = config.d_ff or 4 * config.d_model
        self.widen = nn.Linear(config.d_model, d_ff)
        self.activation = _ACTIVATIONS[config.activation]
        self.narrow = nn.Linear(d_ff, config.d_model)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        narrowed: Tensor = self.narrow(self.activation(self.widen(x)))
        return narrowed


def _squared_relu(x: Tensor) -> Tensor:
    """So et al., 2021, "Primer"."""
    return F.relu(x).square()


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "relu2": _squared_relu,
}


class Layer(nn.Module):
    """Attention and feed-forward, each a branch beside the residual stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(config.d_model)
        self.self_attention = SelfAttention(config, layer)
        self.norm_feed_forward = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "b n d"], turn: Turn | None, bias: AnyBias | None
    ) -> Float[Tensor, "b n d"]:
        x = x + self.dropout(self.self_attention(self.norm_attention(x), turn, bias))
        return self._feed(x)

    def extend(
        self,
        x: Float[Tensor, "b n d"],
        turn: Turn | None,
        bias: AnyBias | None,
        state: State,
        keep: Bool[Tensor, "b n"] | None,
    ) -> tuple[Float[Tensor, "b n d"], State]:
        attended, state = self.self_attention.extend(
            self.norm_attention(x), turn, bias, state, keep
        )
        return self._feed(x + self.dropout(attended)), state

    def _feed(self, x: Tensor) -> Tensor:
        fed: Tensor = x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))
        return fed


class Decoder(nn.Module):
    """Token ids → hidden states, each a function of its token and those before."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.block = config.block
        self.embedding = nn.Embedding(vocabulary, config.d_model - config.d_positions)
        self.concatenated = config.d_positions > 0
        self.absolute = make_absolute(config)
        self.rotary = make_rotary(config)
        self.bias = make_bias(config)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model)
        if self.bias is not None:
            ability = "vectors" if isinstance(self.bias, RelativeVectors) else "bias"
            for layer in self._layers():
                layer.self_attention.attention.require_abilities(ability)

    def forward(self, ids: Int[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
        """Hidden states of whole rows. Padding belongs at the end, where nothing looks at it."""
        x, turn = self._embed(ids, torch.arange(ids.shape[1], device=ids.device)[None])
        for layer in self.layers:
            x = layer(x, turn, self.bias)
        hidden: Tensor = self.norm(x)
        return hidden

    def start(self, batch: int, capacity: int) -> States:
        """The states before the first of at most `capacity` tokens."""
        if capacity > self.block:
            raise ValueError(f"{capacity} tokens don't fit the model's block of {self.block}")
        return [layer.self_attention.start(batch, capacity) for layer in self._layers()]

    def extend(
        self, ids: Int[Tensor, "b n"], states: States, keep: Bool[Tensor, "b n"] | None = None
    ) -> tuple[Float[Tensor, "b n d"], States]:
        """Hidden states of new tokens, after all that the states have seen.

        `keep` says which new tokens are real; they come first in their row.

        Raises:
            IndexError: a real token stands beyond the model's block, where it has no position.
        """
        positions = states[0].length[:, None] + torch.arange(ids.shape[1], device=ids.device)
        if keep is not None:
            positions = positions.masked_fill(~keep, 0)
        x, turn = self._embed(ids, positions)
        grown = []
        for layer, state in zip(self._layers(), states, strict=True):
            x, state = layer.extend(x, turn, self.bias, state, keep)
            grown.append(state)
        return self.norm(x), grown

    def select(self, states: States, rows: Int[Tensor, " rows"]) -> States:
        """The states of the given rows, in that order; the given ones are used up."""
        return [state.select(rows) for state in states]

    def _layers(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def _embed(self, ids: Tensor, positions: Tensor) -> tuple[Tensor, Turn | None]:
        x = self.embedding(ids)
        if self.absolute is not None:
            vectors = self.absolute(positions)
            x = _concatenated(x, vectors) if self.concatenated else x + vectors
        turn = None if self.rotary is None else self.rotary(positions, x.dtype)
        return self.dropout(x), turn


class LanguageModel(nn.Module):
    """A decoder with a head that scores the next token."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.decoder = Decoder(config, vocabulary)
        self.head = nn.Linear(config.d_model, vocabulary, bias=False)
        _initialise(self)
        if config.tie_head:
            self.head.weight = self.decoder.embedding.weight

    def forward(self, ids: Int[Tensor, "b n"]) -> Float[Tensor, "b n vocabulary"]:
        """Logits of the token after each position."""
        logits: Tensor = self.head(self.decoder(ids))
        return logits

    def start(self, batch: int, capacity: int) -> States:
        """The states before the first of at most `capacity` tokens."""
        return self.decoder.start(batch, capacity)

    def extend(
        self, ids: Int[Tensor, "b n"], states: States, keep: Bool[Tensor, "b n"] | None = None
    ) -> tuple[Float[Tensor, "b vocabulary"], States]:
        """Logits of the token after each row's last real one."""
        hidden, states = self.decoder.extend(ids, states, keep)
        if keep is None:
            return self.head(hidden[:, -1]), states
        last = keep.sum(1) - 1
        return self.head(hidden[torch.arange(len(ids), device=ids.device), last]), states

    def select(self, states: States, rows: Int[Tensor, " rows"]) -> States:
        """The states of the given rows, in that order; the given ones are used up."""
        return self.decoder.select(states, rows)


def _concatenated(x: Float[Tensor, "b n d"], vectors: Float[Tensor, "#b n p"]) -> Tensor:
    return torch.cat([x, vectors.to(x.dtype).expand(len(x), -1, -1)], -1)


def _initialise(module: nn.Module) -> None:
    """Weights N(0, 0.02), biases 0; a mechanism's own are its own affair."""
    if isinstance(module, Attention):
        return
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    for child in module.children():
        _initialise(child)
