"""Transformers, from layers and positions: a decoder, an encoder, and both together.

Shapes: b rows, n tokens, m tokens of a source, d = d_model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import Mask, RelativeVectors, State
from regard.models.config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from regard.models.layers import Layer, Turn, length_mask
from regard.models.positions import make_absolute, make_bias, make_rotary


@dataclass(frozen=True, eq=False)
class LayerState:
    """What a decoder's layer remembers: the tokens so far, and the source if there is one."""

    own: State
    source: State | None = None

    @property
    def length(self) -> Int[Tensor, " b"]:
        return self.own.length

    @property
    def bytes(self) -> int:
        return self.own.bytes + (0 if self.source is None else self.source.bytes)

    def select(self, rows: Int[Tensor, " rows"]) -> "LayerState":
        source = None if self.source is None else self.source.select(rows)
        return LayerState(self.own.select(rows), source)


States: TypeAlias = list[LayerState]
"""What a decoder remembers: one state a layer."""

Memories: TypeAlias = Sequence[State]
"""A source as each layer of a decoder looks at it."""


class Transformer(nn.Module):
    """Embeddings with positions, and layers. With norms first, a last norm follows the layers.

    With norms after the sums, it follows the embeddings instead (Devlin et al., 2019).
    """

    def __init__(
        self, config: TransformerConfig, vocabulary: int, d_source: int | None = None
    ) -> None:
        """Layers that look at a source of width `d_source`, if one is given.

        Raises:
            UnsupportedError: the mechanism can't take the position encoding, or look at a source.
        """
        super().__init__()
        self.block, self.width = config.block, config.d_model
        self.norm_first = config.norm == "pre"
        self.embedding = nn.Embedding(vocabulary, config.d_model - config.d_positions)
        self.concatenated = config.d_positions > 0
        self.absolute = make_absolute(config)
        self.rotary = make_rotary(config)
        self.bias = make_bias(config)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(Layer(config, i, d_source) for i in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        if self.bias is not None:
            self._require("vectors" if isinstance(self.bias, RelativeVectors) else "bias")

    def _layers(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def _require(self, *abilities: str) -> None:
        for layer in self._layers():
            layer.self_attention.attention.require_abilities(*abilities)

    def _embed(
        self, ids: Tensor, positions: Tensor, added: Tensor | None = None
    ) -> tuple[Tensor, Turn | None]:
        x = self.embedding(ids)
        if self.absolute is not None:
            vectors = self.absolute(positions)
            x = _concatenated(x, vectors) if self.concatenated else x + vectors
        if added is not None:
            x = x + added
        turn = None if self.rotary is None else self.rotary(positions, x.dtype)
        return self.dropout(x if self.norm_first else self.norm(x)), turn

    def _finish(self, x: Tensor) -> Tensor:
        finished: Tensor = self.norm(x) if self.norm_first else x
        return finished


class Decoder(Transformer):
    """Token ids → hidden states, each a function of its token and those before."""

    def __init__(
        self, config: TransformerConfig, vocabulary: int, d_source: int | None = None
    ) -> None:
        """A decoder, which looks at a source of width `d_source` if one is given.

        Raises:
            UnsupportedError: the mechanism can't be causal, decode, or do what else is asked of it.
        """
        super().__init__(config, vocabulary, d_source)
        self._require("alignment", "decoding")

    def forward(
        self,
        ids: Int[Tensor, "b n"],
        lengths: Int[Tensor, " b"] | None = None,
        memories: Memories | None = None,
    ) -> Float[Tensor, "b n d"]:
        """Hidden states of whole rows; lengths change nothing: no token looks at their padding."""
        x, turn = self._embed(ids, torch.arange(ids.shape[1], device=ids.device)[None])
        for i, layer in enumerate(self.layers):
            memory = None if memories is None else memories[i]
            x = layer(x, turn, self.bias, Mask.causal(), memory)
        return self._finish(x)

    def remember(
        self, source: Float[Tensor, "b m d_source"], lengths: Int[Tensor, " b"] | None
    ) -> Memories:
        """A source as each layer looks at it."""
        return [layer.cross_attention.remember(source, lengths) for layer in self._layers()]

    def start(self, batch: int, capacity: int, memories: Memories | None = None) -> States:
        """The states before the first of at most `capacity` tokens."""
        if capacity > self.block:
            raise ValueError(f"{capacity} tokens don't fit the model's block of {self.block}")
        own = [layer.self_attention.start(batch, capacity) for layer in self._layers()]
        if memories is None:
            return [LayerState(state) for state in own]
        return [LayerState(*pair) for pair in zip(own, memories, strict=True)]

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
            x, own = layer.extend(x, turn, self.bias, state.own, keep, state.source)
            grown.append(LayerState(own, state.source))
        return self._finish(x), grown

    def select(self, states: States, rows: Int[Tensor, " rows"]) -> States:
        """The states of some rows, in their order; the given ones are used up."""
        return [state.select(rows) for state in states]


class Encoder(Transformer):
    """Token ids → hidden states, each a function of all tokens of its row."""

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        """An encoder.

        Raises:
            UnsupportedError: the mechanism can't leave out padding, or take the positions.
        """
        super().__init__(config, vocabulary)
        self._require("key_lengths")
        kinds = config.segments if isinstance(config, EncoderConfig) else 0
        self.segments = nn.Embedding(kinds, config.d_model) if kinds else None

    def forward(
        self,
        ids: Int[Tensor, "b n"],
        lengths: Int[Tensor, " b"] | None = None,
        segments: Int[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n d"]:
        """Hidden states of rows of these lengths; those of padding mean nothing.

        Where the model has segments and none are given, all is the first segment.

        Raises:
            ValueError: segments are given, and the model has no embeddings of them.
        """
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        x, turn = self._embed(ids, positions, self._segment_vectors(ids, segments))
        mask = length_mask(lengths)
        for layer in self.layers:
            x = layer(x, turn, self.bias, mask)
        return self._finish(x)

    def _segment_vectors(self, ids: Tensor, segments: Tensor | None) -> Tensor | None:
        if self.segments is None:
            if segments is not None:
                raise ValueError("the encoder has no segments: set model.segments=2")
            return None
        vectors: Tensor = self.segments(torch.zeros_like(ids) if segments is None else segments)
        return vectors


class EncoderDecoder(nn.Module):
    """A source and the beginning of a target → hidden states of the target."""

    def __init__(self, config: EncoderDecoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.encoder = Encoder(config.encoder, vocabulary)
        self.decoder = Decoder(config.decoder, vocabulary, d_source=config.encoder.d_model)
        self.block, self.width = config.block, config.decoder.d_model

    def forward(
        self,
        source: Int[Tensor, "b m"],
        lengths: Int[Tensor, " b"] | None,
        ids: Int[Tensor, "b n"],
    ) -> Float[Tensor, "b n d"]:
        """Hidden states of whole targets. Their padding belongs at the end."""
        hidden: Tensor = self.decoder(ids, memories=self.encode(source, lengths))
        return hidden

    def encode(self, source: Int[Tensor, "b m"], lengths: Int[Tensor, " b"] | None) -> Memories:
        """Sources as the decoder's layers look at them."""
        return self.decoder.remember(self.encoder(source, lengths), lengths)

    def start(self, batch: int, capacity: int, memories: Memories) -> States:
        """The states before the first of at most `capacity` tokens of a target."""
        return self.decoder.start(batch, capacity, memories)

    def extend(
        self, ids: Int[Tensor, "b n"], states: States, keep: Bool[Tensor, "b n"] | None = None
    ) -> tuple[Float[Tensor, "b n d"], States]:
        """Hidden states of new tokens of the target."""
        return self.decoder.extend(ids, states, keep)

    def select(self, states: States, rows: Int[Tensor, " rows"]) -> States:
        """The states of some rows, in their order; the given ones are used up."""
        return self.decoder.select(states, rows)


def _concatenated(x: Float[Tensor, "b n d"], vectors: Float[Tensor, "#b n p"]) -> Tensor:
    return torch.cat([x, vectors.to(x.dtype).expand(len(x), -1, -1)], -1)
