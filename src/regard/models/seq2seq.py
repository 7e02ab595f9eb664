"""Encoders with decoders: of Transformers, and of recurrent networks with or without attention.

Shapes: b rows, m tokens of a source, n of a target, d = d_model, d_source the width of the encoder.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from msgspec import structs
from torch import Tensor, nn

from regard.attention import LayerShape, Mask, State
from regard.attention.config import AttentionConfig
from regard.attention.state import RowState
from regard.errors import UserError
from regard.models.config import (
    CROSS,
    EncoderDecoderConfig,
    RecurrentEncoderDecoderConfig,
    RecurrentLayersConfig,
)
from regard.models.layers import length_mask
from regard.models.recurrent import (
    LayerStates,
    RecurrentDecoder,
    RecurrentEncoder,
    RecurrentStates,
)
from regard.models.tensors import Hidden, Lengths, SourceIds, TokenIds, TokenMask, require_fit
from regard.models.transformer import Decoder, DecoderStates, Encoder, Memories


class EncoderDecoder(nn.Module):
    """A source and the beginning of a target → hidden states of the target."""

    def __init__(self, config: EncoderDecoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.encoder = Encoder(config.encoder, vocabulary)
        self.decoder = Decoder(config.decoder, vocabulary, source=config.encoder)
        if config.share_embeddings:
            self.encoder.embedding.weight = self.decoder.embedding.weight
        self.context_length, self.width = config.context_length, config.decoder.d_model

    def forward(
        self,
        source: SourceIds,
        lengths: Lengths | None,
        input_ids: TokenIds,
        target_lengths: Lengths | None = None,
    ) -> Hidden:
        """Hidden states of whole targets, whose padding must be at the end."""
        memories = self.encode(source, lengths)
        hidden: Tensor = self.decoder(input_ids, target_lengths, memories=memories)
        return hidden

    def encode(self, source: SourceIds, lengths: Lengths | None) -> Memories:
        """Encode sources for the layers of the decoder."""
        return self.decoder.encode_memory(self.encoder(source, lengths), lengths)

    def init_state(self, batch: int, capacity: int, memories: Memories) -> DecoderStates:
        """Return empty decoding states for at most `capacity` tokens of a target."""
        return self.decoder.init_state(batch, capacity, memories)

    def extend(
        self, input_ids: TokenIds, states: DecoderStates, attention_mask: TokenMask | None = None
    ) -> tuple[Hidden, DecoderStates]:
        """Hidden states of new tokens of the target."""
        return self.decoder.extend(input_ids, states, attention_mask)


class GlobalAttention(nn.Module):
    """tanh(W [c_t; h_t]), with c_t the attention of the decoder state h_t to all encoder states.

    Luong et al., 2015, eq. 5; the score is "general" (eq. 8), its matrix a product of two. The
    output isn't an input of the next step, so that all steps attend at once.
    """

    def __init__(
        self, config: RecurrentLayersConfig, attention: AttentionConfig, d_source: int
    ) -> None:
        """One head of a mechanism, for encoder states of width `d_source`.

        Raises:
            UnsupportedError: the mechanism does not support cross-attention or padding masks.
            UserError: a custom mechanism can't be built.
        """
        super().__init__()
        attention.require_support(*CROSS)
        d = config.d_model
        self.q_proj = nn.Linear(d, d, bias=False)
        self.k_proj = nn.Linear(d_source, d, bias=False)
        self.v_proj = nn.Linear(d_source, d, bias=False)
        shape = LayerShape(
            n_heads=1,
            n_kv_heads=1,
            n_value_heads=1,
            d_head=d,
            context_length=config.context_length,
            seed=torch.initial_seed(),
            dropout=config.dropout,
        )
        self.mechanism = attention.build_for(shape, queries=1)
        self.gating = attention.build_gating((), d, shape)
        self.o_proj = nn.Linear(2 * d, d, bias=False)

    def encode_memory(
        self, source: Float[Tensor, "b m d_source"], lengths: Lengths | None
    ) -> State:
        """Project the encoder states to keys and values, once for all queries."""
        key, value = self.k_proj(source)[:, None], self.v_proj(source)[:, None]
        return self.mechanism.encode_memory(key, value, mask=length_mask(lengths))

    def forward(self, hidden: Hidden, memory: State) -> Hidden:
        """Return decoder states combined with their attention to the source."""
        gathered = self.mechanism.attend_memory(self.q_proj(hidden)[:, None], memory)
        if self.gating is not None:
            gathered = self.gating.finish(hidden, gathered)
        out: Tensor = self.o_proj(torch.cat([gathered[:, 0], hidden], -1))
        return out.tanh()

    def weights(
        self, hidden: Hidden, source: Float[Tensor, "b m d_source"], lengths: Lengths
    ) -> Float[Tensor, "b 1 n m"]:
        """Return the attention weights of decoder states on encoder states."""
        query, key = self.q_proj(hidden)[:, None], self.k_proj(source)[:, None]
        return self.mechanism.weights(query, key, mask=Mask.lengths(lengths))


@dataclass(frozen=True, eq=False)
class EncoderDecoderStates(RowState):
    """Decoding state of the target, and the memory of the source."""

    decoder: RecurrentStates
    source: State | None

    @property
    def length(self) -> Lengths:
        """Number of target tokens so far, per row."""
        return self.decoder.length


class RecurrentEncoderDecoder(nn.Module):
    """A source and the target's beginning → hidden states of the target (Sutskever et al., 2014).

    The decoder begins with linear maps of the encoder's final states, one for each layer and part.
    """

    def __init__(self, config: RecurrentEncoderDecoderConfig, vocabulary: int) -> None:
        """Encoder and decoder share the vocabulary, but not the embeddings.

        Raises:
            UnsupportedError: the mechanism does not support cross-attention or padding masks.
        """
        super().__init__()
        self.context_length, self.width = config.context_length, config.d_model
        self.encoder = RecurrentEncoder(config, vocabulary)
        self.decoder = RecurrentDecoder(structs.replace(config, bidirectional=False), vocabulary)
        d_source, parts = self.encoder.recurrence.d_out, self.encoder.recurrence.parts
        self.bridges = nn.ModuleList(
            nn.Linear(d_source, config.d_model) for _ in range(config.n_layers * parts)
        )
        chosen = config.attention
        self.attention = None if chosen is None else GlobalAttention(config, chosen, d_source)

    def forward(
        self,
        source: SourceIds,
        source_lengths: Lengths,
        input_ids: TokenIds,
        target_lengths: Lengths | None = None,
    ) -> Hidden:
        """Hidden states of whole targets; their lengths are ignored.

        Padding must be at the ends of sources and targets.

        Raises:
            ValueError: sources or targets are longer than the context.
        """
        memory = self.encode(source, source_lengths)
        hidden, _ = self.extend(
            input_ids, self.init_state(len(input_ids), input_ids.shape[1], memory)
        )
        return hidden

    def encode(self, source: SourceIds, source_lengths: Lengths | None) -> EncoderDecoderStates:
        """Return the first states of the decoder, and the memory that it attends to.

        Raises:
            ValueError: the sources are longer than the context.
        """
        hidden, last = self.encoder.encode(source, source_lengths)
        attention = self.attention
        memory = None if attention is None else attention.encode_memory(hidden, source_lengths)
        return EncoderDecoderStates(self._bridge(last), memory)

    def init_state(
        self, batch: int, capacity: int, memory: EncoderDecoderStates
    ) -> EncoderDecoderStates:
        """Return empty decoding states for at most `capacity` tokens of the target.

        Raises:
            ValueError: `capacity` exceeds the context length, or `memory` isn't of `batch` rows.
        """
        require_fit(capacity, self.decoder.context_length)
        if len(memory.length) != batch:
            raise ValueError(f"a memory of {len(memory.length)} sources doesn't fit {batch} rows")
        return memory

    def extend(
        self,
        input_ids: TokenIds,
        states: EncoderDecoderStates,
        attention_mask: TokenMask | None = None,
    ) -> tuple[Hidden, EncoderDecoderStates]:
        """Hidden states of new tokens, after all tokens of the states.

        `attention_mask` is True for real new tokens, which come first in their row.
        """
        hidden, decoder = self.decoder.extend(input_ids, states.decoder, attention_mask)
        if self.attention is not None and states.source is not None:
            hidden = self.attention(hidden, states.source)
        return hidden, EncoderDecoderStates(decoder, states.source)

    def attention_weights(
        self, source: SourceIds, source_lengths: Lengths, input_ids: TokenIds
    ) -> Float[Tensor, "b 1 n m"]:
        """Return the attention weights of target tokens on source tokens.

        Raises:
            UserError: the model has no attention.
        """
        if self.attention is None:
            raise UserError("this model has no attention to show: train one with model.attention")
        hidden, last = self.encoder.encode(source, source_lengths)
        queries, _ = self.decoder.extend(input_ids, self._bridge(last))
        return self.attention.weights(queries, hidden, source_lengths)

    def _bridge(self, last: LayerStates) -> RecurrentStates:
        """Return the first states of the decoder."""
        bridges = iter(self.bridges)
        layers = [torch.stack([next(bridges)(part) for part in state]) for state in last]
        length = torch.zeros(last[0].shape[1], dtype=torch.long, device=last[0].device)
        return RecurrentStates(layers, length)
