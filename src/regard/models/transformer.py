"""Transformers, from layers and positions: a decoder and an encoder.

Shapes: b rows, n tokens, m tokens of a source, d = d_model.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Bias, KernelAttention, Mask, RelativeVectors, State
from regard.attention.kernel import normalizers_checked_together
from regard.attention.mask import document_starts
from regard.attention.state import RowState
from regard.dropout import Dropout
from regard.errors import UnsupportedError
from regard.models.attention_layers import SharedValues, ValueEmbeddings
from regard.models.canon import LayerWithCanon
from regard.models.config import EncoderConfig, TransformerConfig
from regard.models.layers import Layer, length_mask, make_norm
from regard.models.ngrams import NgramEmbedding
from regard.models.places import DECODER, ENCODER, require_layers
from regard.models.tensors import Hidden, Lengths, Rope, TokenIds, TokenMask, require_fit
from regard.positions import (
    Alibi,
    DynamicRotary,
    Learned,
    OneHot,
    RelativeBias,
    Rotary,
    ShawVectors,
    Sinusoidal,
    T5Bias,
    frequencies,
    llama3_frequencies,
)
from regard.positions.config import (
    AlibiConfig,
    DynamicScalingConfig,
    LearnedConfig,
    LinearScalingConfig,
    Llama3ScalingConfig,
    OneHotConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ShawVectorsConfig,
    SinusoidalConfig,
    T5BiasConfig,
)

Memories: TypeAlias = Sequence[State]
"""State of a source for the cross-attention of each layer."""


@dataclass(frozen=True, eq=False)
class DecoderStates(RowState):
    """Decoding states of each layer: of the tokens so far, and of the source if there is one."""

    layers: Sequence[State]
    memories: Memories | None = None
    last_ids: Int[Tensor, "b reach"] | None = None
    """The last token ids, which the next n-grams include."""

    @property
    def length(self) -> Lengths:
        """Number of tokens so far, per row."""
        return self.layers[0].length


class Transformer(nn.Module):
    """Embeddings with positions, and layers. With pre-norm, a last norm follows the layers.

    With post-norm, it follows the embeddings instead (Devlin et al., 2019).
    """

    first_layer = 0
    """Index of the first of `layers`."""

    def __init__(
        self, config: TransformerConfig, vocabulary: int, source: TransformerConfig | None = None
    ) -> None:
        """Build layers, which attend to what the encoder of `source` returns, if one is given.

        Raises:
            UnsupportedError: the mechanism does not support the positions or cross-attention.
        """
        super().__init__()
        self.context_length, self.width = config.context_length, config.d_model
        self.norm_first = config.norm != "post"
        self.embedding = nn.Embedding(vocabulary, config.d_model - config.d_positions)
        width = self.embedding.embedding_dim
        self.ngrams = None if config.ngrams is None else NgramEmbedding(config.ngrams, width)
        self.embedding_scale = config.d_model**0.5 if config.scale_embeddings else None
        self.concatenated = config.d_positions > 0
        self.absolute = _make_absolute(config)
        layers = config.layers
        shares = any(one.value_embedding or one.value_residual for one in layers)
        self.value_embeddings = ValueEmbeddings(layers, vocabulary) if shares else None
        self.rotary, self.rotary_of = _make_rotary(layers)
        self.has_dynamic_positions = any(isinstance(x, DynamicRotary) for x in self.rotary)
        self.bias = _make_bias(config)
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(
            make_layer(one, i, source) for i, one in enumerate(layers, self.first_layer)
        )
        self._layers()[0].sets_values = self.value_embeddings is not None
        self.norm = make_norm(config)
        self.has_normalizers = any(isinstance(m, KernelAttention) for m in self.modules())

    def _layers(self) -> Sequence[Layer]:
        return cast(Sequence[Layer], self.layers)

    def _embed(
        self,
        input_ids: Tensor,
        positions: Tensor,
        ngrams: Tensor | None = None,
        added: Tensor | None = None,
    ) -> tuple[Tensor, list[Rope | None]]:
        """Return the embeddings, and the rotation of each layer; layers of one kind share it."""
        x = self.embedding(input_ids)
        if ngrams is not None:
            x = x + ngrams
        if self.embedding_scale is not None:
            x = x * self.embedding_scale
        if self.absolute is not None:
            vectors = self.absolute(positions).to(x.dtype)
            x = _concatenated(x, vectors) if self.concatenated else x + vectors
        if added is not None:
            x = x + added
        made = [rotary(positions, x.dtype) for rotary in self.rotary]
        ropes = [None if i is None else made[i] for i in self.rotary_of]
        x = x if self.norm_first else self.norm(x)
        return self.dropout(x) if self.training else x, ropes

    def _positions(self, input_ids: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the positions of whole rows; with dynamic scaling, those of padding are 0."""
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        if lengths is None or not self.has_dynamic_positions:
            return positions
        return positions.masked_fill(positions >= lengths[:, None], 0)

    def _embed_ngrams(self, input_ids: Tensor, document_ids: Tensor | None = None) -> Tensor | None:
        """Return the embeddings of n-grams of whole rows, if the model has any."""
        return None if self.ngrams is None else self.ngrams(input_ids, document_ids)

    def _shared_values(self, input_ids: Tensor) -> SharedValues | None:
        """Return the values that layers share, if any."""
        return None if self.value_embeddings is None else self.value_embeddings(input_ids)

    def _checked(self, x: Tensor) -> AbstractContextManager[None]:
        """Return a context for all layers, in which a GPU synchronizes once for normalizers."""
        if not self.has_normalizers or not x.is_cuda or torch.compiler.is_compiling():
            return nullcontext()
        return normalizers_checked_together(self)

    def _finish(self, x: Tensor) -> Tensor:
        finished: Tensor = self.norm(x) if self.norm_first else x
        return finished


def make_layer(
    config: TransformerConfig, layer: int, source: TransformerConfig | None = None
) -> Layer:
    """Build a layer, which attends to what the encoder of `source` returns, if one is given."""
    kind = LayerWithCanon if set("ACD") & set(config.canon) else Layer
    return kind(config, layer, source)


class Decoder(Transformer):
    """Token ids → hidden states, each a function of its token and earlier ones."""

    def __init__(
        self, config: TransformerConfig, vocabulary: int, source: TransformerConfig | None = None
    ) -> None:
        """A decoder, which attends to what the encoder of `source` returns, if one is given.

        Raises:
            UnsupportedError: the mechanism lacks a feature that the configuration requires.
        """
        require_layers(config, DECODER)
        super().__init__(config, vocabulary, source)
        attentions = (m for m in self.modules() if isinstance(m, Attention))
        self.has_auxiliary_losses = any(m.has_auxiliary_loss for m in attentions)

    def require_documents(self) -> None:
        """Raise unless rows may hold several documents.

        Raises:
            UnsupportedError: names the mechanism that doesn't support document masks, and its layer
                if the layers differ, or the positions.
        """
        if self.has_dynamic_positions:
            raise UnsupportedError(
                "dynamic scaling of rotary positions depends on the length of a row, which would "
                "hold several documents"
            )
        mechanisms = [layer.self_attention.attention for layer in self._layers()]
        differ = len({one.name for one in mechanisms}) > 1
        for i, mechanism in enumerate(mechanisms):
            try:
                mechanism.require_support("document_ids")
            except UnsupportedError as error:
                raise UnsupportedError(f"layer {i}: {error}" if differ else str(error)) from None

    def forward(
        self,
        input_ids: TokenIds,
        lengths: Lengths | None = None,
        memories: Memories | None = None,
        document_ids: TokenIds | None = None,
    ) -> Hidden:
        """Hidden states of whole rows; those of padding are undefined.

        No token attends to the padding after it; lengths exclude it from auxiliary losses, and from
        the length on which dynamic scaling of rotary positions depends. With `document_ids`, a
        token attends only to its own document, where positions begin at 0.
        """
        mask = Mask.causal()
        positions = self._positions(input_ids, lengths)
        if document_ids is not None:
            mask = mask & Mask.documents(document_ids)
            positions = positions - document_starts(document_ids)
        if lengths is not None and self.has_auxiliary_losses and self.training:
            mask = mask & Mask.lengths(lengths)
        x, ropes = self._embed(input_ids, positions, self._embed_ngrams(input_ids, document_ids))
        values = self._shared_values(input_ids)
        each: Sequence[State | None] = memories or [None] * len(ropes)
        with self._checked(x):
            for layer, rope, memory in zip(self.layers, ropes, each, strict=True):
                x = layer(x, rope, self.bias, mask, memory, values)
        return self._finish(x)

    def encode_memory(
        self, source: Float[Tensor, "b m d_source"], lengths: Lengths | None
    ) -> Memories:
        """Encode a source for each layer; all layers share the mask of its padding."""
        mask = length_mask(lengths)
        return [layer.cross_attention.encode_memory(source, mask) for layer in self._layers()]

    def init_state(
        self, batch: int, capacity: int, memories: Memories | None = None
    ) -> DecoderStates:
        """Return empty decoding states for at most `capacity` tokens."""
        require_fit(capacity, self.context_length)
        layers = [layer.init_state(batch, capacity) for layer in self._layers()]
        last_ids = None if self.ngrams is None else self.ngrams.first_ids(batch)
        return DecoderStates(layers, memories, last_ids)

    def extend(
        self,
        input_ids: TokenIds,
        states: DecoderStates,
        attention_mask: TokenMask | None = None,
        *,
        last: bool = False,
    ) -> tuple[Hidden, DecoderStates]:
        """Hidden states of new tokens, after all tokens of the states.

        `attention_mask` is True for real new tokens, which come first in their row. With `last`,
        only the hidden state of each row's last real token is returned.

        Raises:
            IndexError: a real token is beyond the context length.
        """
        positions = states.length.unsqueeze(1)
        if input_ids.shape[1] != 1:
            positions = positions + torch.arange(input_ids.shape[1], device=input_ids.device)
        if attention_mask is not None:
            positions = positions.masked_fill(~attention_mask, 0)
        last_ids = states.last_ids
        ngrams = None
        if self.ngrams is not None and last_ids is not None:
            ngrams, last_ids = self.ngrams.extend(input_ids, last_ids, attention_mask)
        x, ropes = self._embed(input_ids, positions, ngrams)
        values, grown = self._shared_values(input_ids), []
        n = len(states.layers)
        memories: Sequence[State | None] = states.memories or [None] * n
        each = zip(self._layers(), ropes, states.layers, memories, strict=True)
        with self._checked(x):
            for i, (layer, rope, state, memory) in enumerate(each, 1):
                at_end = last and i == n and input_ids.shape[1] > 1
                x, state = layer.extend(
                    x, rope, self.bias, state, attention_mask, memory, values, last=at_end
                )
                grown.append(state)
        return self._finish(x), DecoderStates(grown, states.memories, last_ids)


class Encoder(Transformer):
    """Token ids → hidden states, each a function of all tokens of its row."""

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        """An encoder.

        Raises:
            UnsupportedError: the mechanism does not support padding masks or the positions.
        """
        require_layers(config, ENCODER)
        super().__init__(config, vocabulary)
        kinds = config.n_token_types if isinstance(config, EncoderConfig) else 0
        self.token_type_embedding = nn.Embedding(kinds, config.d_model) if kinds else None

    def forward(
        self,
        input_ids: TokenIds,
        lengths: Lengths | None = None,
        token_type_ids: TokenIds | None = None,
    ) -> Hidden:
        """Hidden states of rows of these lengths; those of padding are undefined.

        Without token types, all tokens have type 0.

        Raises:
            ValueError: token types are given, and the model has no embeddings of them.
        """
        x, ropes = self._embed(
            input_ids,
            self._positions(input_ids, lengths),
            self._embed_ngrams(input_ids),
            self._embed_token_types(input_ids, token_type_ids),
        )
        mask, values = length_mask(lengths), self._shared_values(input_ids)
        with self._checked(x):
            for layer, rope in zip(self.layers, ropes, strict=True):
                x = layer(x, rope, self.bias, mask, None, values)
        return self._finish(x)

    def _embed_token_types(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor | None:
        if self.token_type_embedding is None:
            if token_type_ids is not None:
                raise ValueError("the encoder has no token types: set model.n_token_types=2")
            return None
        vectors: Tensor = self.token_type_embedding(
            torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        )
        return vectors


def _concatenated(x: Hidden, vectors: Float[Tensor, "#b n p"]) -> Tensor:
    return torch.cat([x, vectors.to(x.dtype).expand(len(x), -1, -1)], -1)


def _make_absolute(config: TransformerConfig) -> Learned | Sinusoidal | OneHot | None:
    """Return the position vectors of the input, if any."""
    d = config.d_positions or config.d_model
    match config.positions:
        case LearnedConfig(offset=offset):
            return Learned(length=config.context_length, d=d, offset=offset)
        case SinusoidalConfig(base=base):
            return Sinusoidal(length=config.context_length, d=d, base=base)
        case OneHotConfig():
            return OneHot(length=config.context_length, d=d)
    return None


def _make_rotary(layers: Sequence[TransformerConfig]) -> tuple[nn.ModuleList, list[int | None]]:
    """Return the distinct rotary positions of layers, and the index of each layer's, if any."""
    kinds = [
        (one.positions, one.rotary_width) if isinstance(one.positions, RotaryConfig) else None
        for one in layers
    ]
    distinct = list(dict.fromkeys(kind for kind in kinds if kind is not None))
    length = layers[0].context_length
    made = nn.ModuleList(_rotary_of(config, width, length) for config, width in distinct)
    return made, [None if kind is None else distinct.index(kind) for kind in kinds]


def _rotary_of(config: RotaryConfig, width: int, length: int) -> Rotary | DynamicRotary:
    """Return rotary positions for `length` tokens, by default of the whole width."""
    d, base = config.dim or width, config.base
    scaled = frequencies(d, base)
    match config.scaling:
        case DynamicScalingConfig(factor=factor, original_context_length=original):
            return DynamicRotary(d=d, base=base, factor=factor, original_length=original)
        case LinearScalingConfig(factor=factor):
            scaled = scaled / factor
        case Llama3ScalingConfig() as scaling:
            scaled = llama3_frequencies(
                scaled,
                factor=scaling.factor,
                low_freq_factor=scaling.low_freq_factor,
                high_freq_factor=scaling.high_freq_factor,
                original_length=scaling.original_context_length,
            )
    return Rotary(scaled, length=length)


def _make_bias(config: TransformerConfig) -> Bias | RelativeVectors | None:
    """Return the bias of the scores, or of keys and values, that all layers share, if any."""
    match config.positions:
        case RelativeBiasConfig(clip=None):
            return RelativeBias(heads=config.n_heads, length=config.context_length)
        case RelativeBiasConfig(clip=clip):
            return RelativeBias(heads=config.n_heads, clip=clip)
        case ShawVectorsConfig(clip=clip):
            return ShawVectors(d=config.d_head, clip=clip)
        case T5BiasConfig(buckets=buckets, max_distance=farthest, bidirectional=both_ways):
            return T5Bias(
                heads=config.n_heads,
                buckets=buckets,
                max_distance=farthest,
                bidirectional=both_ways,
            )
        case AlibiConfig():
            return Alibi(heads=config.n_heads)
    return None
