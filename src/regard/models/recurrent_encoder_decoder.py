"""A recurrent encoder and decoder, with or without attention between them.

Shapes: b rows, n tokens, d = d_model, d_source the width of the encoder's states.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from msgspec import structs
from torch import Tensor, nn

from regard.attention import Mask, State
from regard.errors import UserError
from regard.models.attention import make_attention
from regard.models.config import TransformerConfig
from regard.models.config_attention import AttentionConfig
from regard.models.config_recurrent import RecurrentEncoderDecoderConfig, RecurrentLayersConfig
from regard.models.recurrent import (
    RecurrentDecoder,
    RecurrentEncoder,
    RecurrentStates,
    require_fit,
)


class GlobalAttention(nn.Module):
    """tanh(W [c_t; h_t]), c_t being what the decoder's state h_t gathers of all encoder states.

    Luong et al., 2015, eq. 5; the score is «general» (eq. 8), its matrix a product of two. The
    output isn't fed back into the next step, so that all steps can look at once.
    """

    def __init__(
        self, config: RecurrentLayersConfig, attention: AttentionConfig, d_source: int
    ) -> None:
        """One head of a mechanism, for encoder states of width `d_source`.

        Raises:
            UnsupportedError: the mechanism can't look at another sequence, or leave out padding.
            UserError: a mechanism of the user's own can't be made.
        """
        super().__init__()
        d = config.d_model
        self.project_query = nn.Linear(d, d, bias=False)
        self.project_key = nn.Linear(d_source, d, bias=False)
        self.project_value = nn.Linear(d_source, d, bias=False)
        self.mechanism = make_attention(_one_head(config, attention), layer=0)
        self.mechanism.require_abilities("cross", "key_lengths")
        self.project_out = nn.Linear(2 * d, d, bias=False)

    def memory(
        self, source: Float[Tensor, "b n_source d_source"], lengths: Int[Tensor, " b"]
    ) -> State:
        """Encoder states, kept for many queries."""
        key, value = self.project_key(source)[:, None], self.project_value(source)[:, None]
        return self.mechanism.memory(key, value, mask=Mask.lengths(lengths))

    def forward(self, hidden: Float[Tensor, "b n d"], memory: State) -> Float[Tensor, "b n d"]:
        """Decoder states, each with what it gathers."""
        gathered = self.mechanism.read(self.project_query(hidden)[:, None], memory)[:, 0]
        out: Tensor = self.project_out(torch.cat([gathered, hidden], -1))
        return out.tanh()

    def weights(
        self,
        hidden: Float[Tensor, "b n d"],
        source: Float[Tensor, "b n_source d_source"],
        lengths: Int[Tensor, " b"],
    ) -> Float[Tensor, "b 1 n n_source"]:
        """How much of each encoder state each decoder state gathers."""
        query, key = self.project_query(hidden)[:, None], self.project_key(source)[:, None]
        return self.mechanism.weights(query, key, mask=Mask.lengths(lengths))


@dataclass(frozen=True, eq=False)
class EncoderDecoderStates:
    """What a decoder remembers of its own sequence, and what it looks at of the source."""

    decoder: RecurrentStates
    source: State | None

    @property
    def length(self) -> Int[Tensor, " b"]:
        """How many tokens of the target each row has seen."""
        return self.decoder.length

    @property
    def bytes(self) -> int:
        """Size of all tensors."""
        return self.decoder.bytes + (0 if self.source is None else self.source.bytes)

    def select(self, rows: Int[Tensor, " rows"]) -> "EncoderDecoderStates":
        """The states of the given rows, in that order; a row may be taken several times."""
        source = None if self.source is None else self.source.select(rows)
        return EncoderDecoderStates(self.decoder.select(rows), source)


class RecurrentEncoderDecoder(nn.Module):
    """A source and the target's beginning → hidden states of the target (Sutskever et al., 2014).

    The decoder begins with linear maps of the encoder's final states, one for each layer and part.
    """

    def __init__(self, config: RecurrentEncoderDecoderConfig, vocabulary: int) -> None:
        """Both sides share the vocabulary, and have embeddings of their own.

        Raises:
            UnsupportedError: the attention can't look at another sequence, or leave out padding.
        """
        super().__init__()
        self.block, self.width = config.block, config.d_model
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
        source: Int[Tensor, "b n_source"],
        source_lengths: Int[Tensor, " b"],
        ids: Int[Tensor, "b n"],
    ) -> Float[Tensor, "b n d"]:
        """Hidden states of whole targets. Padding belongs at the end of both.

        Raises:
            ValueError: sources or targets are longer than the block.
        """
        memory = self.encode(source, source_lengths)
        hidden, _ = self.extend(ids, self.start(len(ids), ids.shape[1], memory))
        return hidden

    def encode(
        self, source: Int[Tensor, "b n_source"], source_lengths: Int[Tensor, " b"]
    ) -> EncoderDecoderStates:
        """All that the decoder gets to know of the source: its first states, and what it looks at.

        Raises:
            ValueError: the sources are longer than the block.
        """
        hidden, last = self.encoder.encode(source, source_lengths)
        attention = self.attention
        memory = None if attention is None else attention.memory(hidden, source_lengths)
        return EncoderDecoderStates(self._bridge(last), memory)

    def start(
        self, batch: int, capacity: int, memory: EncoderDecoderStates
    ) -> EncoderDecoderStates:
        """The states before the first of at most `capacity` tokens of the target.

        Raises:
            ValueError: that is more than the block, or the memory has another number of rows.
        """
        require_fit(capacity, self.decoder.block)
        if len(memory.length) != batch:
            raise ValueError(f"a memory of {len(memory.length)} sources doesn't fit {batch} rows")
        return memory

    def extend(
        self,
        ids: Int[Tensor, "b n"],
        states: EncoderDecoderStates,
        keep: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b n d"], EncoderDecoderStates]:
        """Hidden states of new tokens, after all that the states have seen.

        `keep` says which new tokens are real; they come first in their row.
        """
        hidden, decoder = self.decoder.extend(ids, states.decoder, keep)
        if self.attention is not None and states.source is not None:
            hidden = self.attention(hidden, states.source)
        return hidden, EncoderDecoderStates(decoder, states.source)

    def select(
        self, states: EncoderDecoderStates, rows: Int[Tensor, " rows"]
    ) -> EncoderDecoderStates:
        """The states of some rows, in their order; the given ones are used up."""
        return states.select(rows)

    def attention_weights(
        self,
        source: Int[Tensor, "b n_source"],
        source_lengths: Int[Tensor, " b"],
        ids: Int[Tensor, "b n"],
    ) -> Float[Tensor, "b 1 n n_source"]:
        """How much of each source token's state each target token gathers.

        Raises:
            UserError: the model has no attention.
        """
        if self.attention is None:
            raise UserError("this model has no attention to show: train one with model.attention")
        hidden, last = self.encoder.encode(source, source_lengths)
        queries, _ = self.decoder.extend(ids, self._bridge(last))
        return self.attention.weights(queries, hidden, source_lengths)

    def _bridge(self, last: Float[Tensor, "layers parts b d_source"]) -> RecurrentStates:
        """The decoder's first states."""
        mapped = [bridge(x) for bridge, x in zip(self.bridges, last.flatten(0, 1), strict=True)]
        layers = torch.stack(mapped).unflatten(0, last.shape[:2])
        length = torch.zeros(last.shape[2], dtype=torch.long, device=last.device)
        return RecurrentStates(layers, length)


def _one_head(config: RecurrentLayersConfig, attention: AttentionConfig) -> TransformerConfig:
    """What a mechanism is made by: its place is as in a Transformer of one head."""
    return TransformerConfig(
        block=config.block,
        n_heads=1,
        d_model=config.d_model,
        dropout=config.dropout,
        attention=attention,
    )
