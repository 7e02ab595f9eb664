"""The Perceiver of assignment 5 of Stanford's CS224N (2023), a causal language model with latents.

Shapes: b rows, n tokens, d = d_model, l latents of a row, at most m = n_latents.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Mask, State
from regard.attention.base import product_dtype
from regard.attention.state import KeyValueCache, RowState, StateShape
from regard.dropout import Dropout
from regard.models.attention_layers import CrossAttention
from regard.models.config import PerceiverConfig
from regard.models.layers import CheckpointedModule, FeedForward, make_norm
from regard.models.places import PERCEIVER, require_layers
from regard.models.tensors import Hidden, Lengths, TokenIds, TokenMask, require_fit
from regard.models.transformer import Transformer

Latents = Float[Tensor, "b l d"]


@dataclass(frozen=True, eq=False)
class PerceiverStates(RowState):
    """Decoding states of the first and the inner layers, and the last layer's keys and values."""

    down: State
    inner: Sequence[State]
    latents: KeyValueCache
    length: Lengths
    """Number of tokens so far, per row."""


class LatentLayer(CheckpointedModule):
    """Attention between latents and tokens, and feed-forward; the pre-norm is of latents."""

    def __init__(self, config: PerceiverConfig, layer: int) -> None:
        super().__init__()
        self.n_latents = config.n_latents
        self.norm_attention = make_norm(config)
        self.dropout_attention = Dropout(config.dropout)
        self.cross_attention = CrossAttention(config, layer, config)
        self.norm_feed_forward = make_norm(config)
        self.dropout_feed_forward = Dropout(config.dropout)
        self.feed_forward = FeedForward(config)

    def rest(self, x: Hidden, attended: Hidden) -> Hidden:
        """Return the stream after attention and feed-forward."""
        x = self._add(self.norm_attention, x, self.dropout_attention, attended)
        fed = self.feed_forward(self.norm_feed_forward(x))
        return self._add(self.norm_feed_forward, x, self.dropout_feed_forward, fed)

    def _add(self, norm: nn.Module, x: Tensor, dropout: Dropout, branch: Tensor) -> Tensor:
        """Return the stream plus the output of a branch; edits identify branches by their norms."""
        del norm
        summed: Tensor = x + dropout(branch)
        return summed

    def empty(self, batch: int, capacity: int) -> StateShape:
        """Return the shape of a state of at most m positions."""
        attention, weight = self.cross_attention, self.cross_attention.q_proj.weight
        d, slots = attention.d_head, min(capacity, self.n_latents)
        dtype = product_dtype(weight)
        return StateShape(batch, attention.kv_heads, d, d, slots, weight.device, dtype)


class DownLayer(LatentLayer):
    """Latent i, of a trained basis, attends to the tokens up to i."""

    def __init__(self, config: PerceiverConfig, layer: int) -> None:
        super().__init__(config, layer)
        basis = torch.empty(1, config.n_latents, config.d_model)
        self.basis = nn.Parameter(nn.init.xavier_uniform_(basis))

    def forward(self, x: Hidden) -> Latents:
        """Return the latents of the first tokens."""
        read = x[:, : self.n_latents]
        return self.attend(self.basis[:, : read.shape[1]].expand(len(x), -1, -1), read)

    def attend(self, basis: Latents, read: Float[Tensor, "b l d"]) -> Latents:
        """Return the latents of tokens, from the basis."""
        attention, normed = self.cross_attention, self.norm_attention(basis)
        query, (key, value) = attention.queries(normed), attention.keys_and_values(read)
        out = attention.attention(query, key, value, mask=Mask.causal())
        return self.rest(basis, attention.finish(normed, out))

    def init_state(self, batch: int, capacity: int) -> State:
        """Return the empty decoding state."""
        return self.cross_attention.attention.init_state(**vars(self.empty(batch, capacity)))

    def extend(
        self, x: Hidden, positions: Int[Tensor, "b n"], state: State, made: TokenMask | None
    ) -> tuple[Latents, State]:
        """Return the latents of new tokens where `made` is True, and the state with them."""
        basis = self.basis[0, positions.clamp(max=self.n_latents - 1)]
        return self.attend_new(basis, x, state, made)

    def attend_new(
        self, basis: Latents, x: Hidden, state: State, made: TokenMask | None
    ) -> tuple[Latents, State]:
        """Return the latents of new tokens, from the basis, and the state with them."""
        attention, normed = self.cross_attention, self.norm_attention(basis)
        query, (key, value) = attention.queries(normed), attention.keys_and_values(x)
        extend = attention.attention.extend
        out, state = extend(query, key, value, state, attention_mask=made)
        return self.rest(basis, attention.finish(normed, out)), state


class UpLayer(LatentLayer):
    """Token i, as embedded, attends to the latents up to i."""

    def forward(self, x: Hidden, latents: Latents) -> Hidden:
        """Return the hidden states of tokens."""
        key, value = self.cross_attention.keys_and_values(self.norm_attention(latents))
        return self.attend(x, key, value, Mask.causal())

    def attend(self, x: Hidden, key: Tensor, value: Tensor, mask: Mask | None) -> Hidden:
        """Return the hidden states of tokens, from keys and values of latents."""
        attention = self.cross_attention
        query = attention.queries(x)
        out = attention.attention(query, key.to(query.dtype), value.to(query.dtype), mask=mask)
        return self.rest(x, attention.finish(x, out))

    def append(
        self, latents: Latents, cache: KeyValueCache, made: TokenMask | None
    ) -> KeyValueCache:
        """Return the cache with new latents where `made` is True."""
        key, value = self.cross_attention.keys_and_values(self.norm_attention(latents))
        return cache.append(key, value, made)

    def extend(
        self, x: Hidden, positions: Int[Tensor, "b n"] | None, cache: KeyValueCache
    ) -> Hidden:
        """Return the hidden states of new tokens, from the cache; None: they read all of it."""
        key, value = cache.filled()
        if positions is None:
            return self.attend(x, key, value, None)
        slots = torch.arange(key.shape[2], device=x.device)
        return self.attend(x, key, value, Mask.dense((slots <= positions[:, :, None])[:, None]))


class PerceiverDecoder(Transformer):
    """Token ids → hidden states, each a function of its token and of the first m tokens up to it.

    Latents i < m attend to the tokens up to i, inner layers to latents up to i, and the last layer
    leads back to tokens: from token i to the latents up to i. So the model is causal, and a token
    from the m-th on (counted from 0) is read by no other token.
    """

    first_layer = 1

    def __init__(self, config: PerceiverConfig, vocabulary: int) -> None:
        """A perceiver.

        Raises:
            UnsupportedError: the mechanism lacks a feature that the body requires.
        """
        require_layers(config, PERCEIVER)
        super().__init__(config, vocabulary)
        self.n_latents = config.n_latents
        self.down, self.up = DownLayer(config, 0), UpLayer(config, config.n_layers - 1)

    def forward(self, input_ids: TokenIds, lengths: Lengths | None = None) -> Hidden:
        """Hidden states of whole rows; lengths are ignored: no token depends on later padding."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        x, _ = self._embed(input_ids, positions)
        latents = self.down(x)
        for layer in self.layers:
            latents = layer(latents, None, None, Mask.causal())
        return self._finish(self.up(x, latents))

    def init_state(self, batch: int, capacity: int) -> PerceiverStates:
        """Return empty decoding states for at most `capacity` tokens.

        Raises:
            ValueError: `capacity` exceeds the context length.
        """
        require_fit(capacity, self.context_length)
        shape = self.up.empty(batch, capacity)
        inner = [layer.self_attention.init_state(batch, shape.capacity) for layer in self._layers()]
        length = torch.zeros(batch, dtype=torch.long, device=shape.device)
        down = self.down.init_state(batch, capacity)
        return PerceiverStates(down, inner, KeyValueCache.empty(shape), length)

    def extend(
        self, input_ids: TokenIds, states: PerceiverStates, attention_mask: TokenMask | None = None
    ) -> tuple[Hidden, PerceiverStates]:
        """Hidden states of new tokens, after all tokens of the states.

        `attention_mask` is True for real new tokens, which come first in their row.
        """
        new = torch.arange(input_ids.shape[1], device=input_ids.device)
        positions = states.length[:, None] + new
        read = positions if attention_mask is None else positions.masked_fill(~attention_mask, 0)
        x, _ = self._embed(input_ids, read)
        down, inner, cache = states.down, states.inner, states.latents
        if cache.shortest < self.n_latents:
            made = self._made(positions, cache, attention_mask)
            latents, down = self.down.extend(x, positions, down, made)
            grown = []
            for layer, state in zip(self._layers(), inner, strict=True):
                latents, state = layer.extend(latents, None, None, state, made)
                grown.append(state)
            inner, cache = grown, self.up.append(latents, cache, made)
        reads_all = states.latents.shortest == self.n_latents
        hidden = self._finish(self.up.extend(x, None if reads_all else read, cache))
        tokens = len(new) if attention_mask is None else attention_mask.sum(1)
        return hidden, PerceiverStates(down, inner, cache, states.length + tokens)

    def _made(
        self, positions: Int[Tensor, "b n"], cache: KeyValueCache, attention_mask: TokenMask | None
    ) -> Bool[Tensor, "b n"] | None:
        """Return which new tokens have a latent, real ones of the first m; None: all."""
        if cache.longest + positions.shape[1] <= self.n_latents:
            return attention_mask
        first = positions < self.n_latents
        return first if attention_mask is None else first & attention_mask
