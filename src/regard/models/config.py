"""Models as data: positions, bodies and heads. Knows no torch."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from regard.attention.config import AttentionConfig, SoftmaxConfig
from regard.config import Config, Count, Positive, Probability

# Position encodings: a class for each of `regard.positions`


class InputPositionsConfig(Config, frozen=True):
    """Base of position vectors of the input."""

    combine: Literal["add", "concatenate"] = "add"
    """Added to the embeddings, or concatenated with them."""


class AbsoluteConfig(InputPositionsConfig, frozen=True):
    """Position vectors of any width."""

    width: Positive | None = None
    """Width if concatenated. Default: half of d_model."""

    def __post_init__(self) -> None:
        if self.width is not None and self.combine == "add":
            raise ValueError(
                f"width = {self.width} is for concatenated positions; added ones have d_model: "
                "leave it out, or set combine to concatenate"
            )


class LearnedConfig(AbsoluteConfig, frozen=True, tag_field="kind", tag="learned"):
    """One learned vector per position."""


class SinusoidalConfig(AbsoluteConfig, frozen=True, tag_field="kind", tag="sinusoidal"):
    """Sines and cosines of the position."""

    base: Annotated[float, Meta(gt=1)] = 10_000.0
    """The longest wavelength is about 2π times this."""


class OneHotConfig(InputPositionsConfig, frozen=True, tag_field="kind", tag="one-hot"):
    """One unit vector per position."""


class RelativeBiasConfig(Config, frozen=True, tag_field="kind", tag="relative-bias"):
    """A learned number per head and distance, added to the scores."""

    clip: Count | None = None
    """Largest distance with its own number. Default: no limit."""


class ShawVectorsConfig(Config, frozen=True, tag_field="kind", tag="shaw-vectors"):
    """Learned vectors per distance, added to keys and values."""

    clip: Count = 16
    """Largest distance with its own vectors."""


class T5BiasConfig(Config, frozen=True, tag_field="kind", tag="t5-bias"):
    """A learned number per head and bucket of distances, added to the scores."""

    buckets: Annotated[int, Meta(ge=2)] = 32
    """Number of buckets; the first half holds one distance each, the others increasingly many."""
    max_distance: Annotated[int, Meta(ge=2)] = 128
    """Distances from here on share the last bucket."""

    def __post_init__(self) -> None:
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"max_distance = {self.max_distance} is among the {self.buckets // 2} distances "
                f"with a bucket of their own: choose more than {self.buckets // 2}"
            )


class AlibiConfig(Config, frozen=True, tag_field="kind", tag="alibi"):
    """Scores decrease linearly with distance, with a slope per head."""


class RotaryConfig(Config, frozen=True, tag_field="kind", tag="rotary"):
    """Queries and keys rotated by their positions."""

    base: Annotated[float, Meta(gt=1)] = 10_000.0
    """The longest wavelength is about 2π times this."""


class NoPositionsConfig(Config, frozen=True, tag_field="kind", tag="none"):
    """No positions; only the causal mask carries order."""


PositionsConfig: TypeAlias = (
    LearnedConfig
    | SinusoidalConfig
    | OneHotConfig
    | RelativeBiasConfig
    | ShawVectorsConfig
    | T5BiasConfig
    | AlibiConfig
    | RotaryConfig
    | NoPositionsConfig
)


# Transformers


class TransformerConfig(Config, frozen=True):
    """A stack of Transformer layers with its embeddings."""

    context_length: Annotated[int, Meta(ge=8)] = 128
    """Longest sequence, in tokens."""
    n_layers: Positive = 4
    """Number of layers."""
    n_heads: Positive = 8
    """Number of attention heads."""
    n_kv_heads: Positive | None = None
    """Number of key/value heads, shared by consecutive heads. Default: n_heads."""
    d_model: Positive = 256
    """Width of the residual stream."""
    d_ff: Positive | None = None
    """Width of the feed-forward layer. Default: four times d_model."""
    activation: Literal["gelu", "gelu-tanh", "relu", "relu2"] = "gelu"
    """Activation of the feed-forward layer; gelu-tanh is GPT-2's approximation of gelu, relu2 is
    relu squared."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norm before each branch, or after each residual sum."""
    norm_eps: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    """Added to the variance in layer norms."""
    dropout: Probability = 0.1
    """Dropout of embeddings, residual branches and attention weights (softmax only)."""
    attention: AttentionConfig = SoftmaxConfig()
    """The attention mechanism."""
    positions: PositionsConfig = LearnedConfig()
    """The position encoding."""
    short_conv: Annotated[int, Meta(ge=0, le=16)] = 0
    """Width of a causal convolution of queries, keys and values, in tokens; 0: none; 4 is usual."""

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads = {self.n_heads} doesn't divide d_model = {self.d_model}: "
                "choose a divisor of d_model"
            )
        if self.n_heads % self.kv_heads:
            raise ValueError(
                f"n_kv_heads = {self.kv_heads} doesn't divide n_heads = {self.n_heads}: "
                "choose a divisor of n_heads"
            )
        if isinstance(self.positions, RotaryConfig) and self.d_head % 2:
            raise ValueError(
                f"rotary positions need an even head width, and d_model / n_heads = {self.d_head}"
            )
        self._check_absolute_positions()

    def _check_absolute_positions(self) -> None:
        width = self.d_positions
        own_width = width or self.d_model
        if isinstance(self.positions, SinusoidalConfig) and own_width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {own_width}")
        if isinstance(self.positions, OneHotConfig) and self.context_length > self.d_model:
            raise ValueError(
                f"one-hot positions of a context of {self.context_length} don't fit "
                f"d_model = {self.d_model}: "
                "take a wider model, or a shorter context"
            )
        if width >= self.d_model:
            raise ValueError(
                f"concatenated positions of width {width} leave no width for tokens in "
                f"d_model = {self.d_model}"
            )

    @property
    def summary(self) -> str:
        """Its sizes, in words."""
        return (
            f"{self.n_layers} layers, {self.n_heads} heads, width {self.d_model}, "
            f"context length {self.context_length}"
        )

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def d_positions(self) -> int:
        """Width of the part of the embeddings that is positions; 0 if they are added."""
        match self.positions:
            case OneHotConfig(combine="concatenate"):
                return self.context_length
            case AbsoluteConfig(combine="concatenate", width=width):
                return width or self.d_model // 2
        return 0


class TiedConfig(TransformerConfig, frozen=True):
    """A stack whose head may share its embedding matrix."""

    tie_head: bool = False
    """Whether the output head uses the embedding matrix."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_positions and self.tie_head:
            raise ValueError(
                "tie_head = true needs embeddings of width d_model: add the positions instead of "
                "concatenating them"
            )


class DecoderConfig(TiedConfig, frozen=True, tag_field="kind", tag="decoder"):
    """A decoder-only Transformer (GPT), with causal attention."""


class EncoderConfig(TiedConfig, frozen=True, tag_field="kind", tag="encoder"):
    """An encoder-only Transformer (BERT), with bidirectional attention."""

    n_token_types: Count = 0
    """Number of token types, each with an embedding; 0: none."""


class EncoderDecoderConfig(Config, frozen=True, tag_field="kind", tag="encoder-decoder"):
    """An encoder of the source, and a decoder of the target with cross-attention to it."""

    encoder: TransformerConfig = TransformerConfig()
    """The encoder."""
    decoder: TransformerConfig = TransformerConfig()
    """The decoder."""

    @property
    def context_length(self) -> int:
        """Longest target, in tokens."""
        return self.decoder.context_length

    @property
    def summary(self) -> str:
        """Its sizes, in words."""
        return f"encoder: {self.encoder.summary}; decoder: {self.decoder.summary}"


# Other models


class RecurrentLayersConfig(Config, frozen=True):
    """Base of recurrent networks."""

    context_length: Annotated[int, Meta(ge=8)] = 128
    """Longest sequence, in tokens."""
    cell: Literal["vanilla", "gru", "lstm"] = "gru"
    """Type of the recurrent cell."""
    activation: Literal["tanh", "identity"] = "tanh"
    """Activation of vanilla cells; identity makes a linear recurrence."""
    n_layers: Positive = 2
    """Number of layers."""
    d_model: Positive = 256
    """Width of the embeddings, and of a layer's states in each direction."""
    dropout: Probability = 0.1
    """Dropout of embeddings, between layers, and of attention weights (softmax only)."""
    bidirectional: bool = False
    """Whether a second network reads from the end; not for next-token prediction."""

    @property
    def summary(self) -> str:
        """Its sizes, in words."""
        ways = ", both ways" if self.bidirectional else ""
        return (
            f"{self.n_layers} layers of {self.cell} cells{ways}, width {self.d_model}, "
            f"context length {self.context_length}"
        )

    def __post_init__(self) -> None:
        if self.activation != "tanh" and self.cell != "vanilla":
            raise ValueError(
                f"activation = {self.activation} is for vanilla cells, and cell = {self.cell}: "
                "set cell to vanilla, or leave activation out"
            )


class RecurrentConfig(RecurrentLayersConfig, frozen=True, tag_field="kind", tag="rnn"):
    """A recurrent network."""

    tie_head: bool = False
    """Whether the head uses the embedding matrix."""


class RecurrentEncoderDecoderConfig(
    RecurrentLayersConfig, frozen=True, tag_field="kind", tag="rnn-encoder-decoder"
):
    """A recurrent encoder, and a recurrent decoder that continues from its last states.

    `bidirectional` is of the encoder; a decoder never looks ahead.
    """

    attention: AttentionConfig | None = None
    """Attention to the encoder's states. Default: none, only the last state is passed on."""


class FixedWindowConfig(Config, frozen=True, tag_field="kind", tag="fixed-window"):
    """A language model of the last tokens (Bengio et al., 2003)."""

    context_length: Annotated[int, Meta(ge=8)] = 128
    """Longest sequence, in tokens."""
    size: Positive = 8
    """Number of tokens in the window."""
    d_model: Positive = 256
    """Width of the embeddings and of the output."""
    d_hidden: Positive = 512
    """Width of the hidden layer."""
    dropout: Probability = 0.1
    """Dropout of embeddings and of the hidden layer."""
    tie_head: bool = False
    """Whether the head uses the embedding matrix."""

    @property
    def summary(self) -> str:
        """Its sizes, in words."""
        return f"{self.size} tokens, width {self.d_model}, context length {self.context_length}"


ModelConfig: TypeAlias = (
    DecoderConfig
    | EncoderConfig
    | EncoderDecoderConfig
    | RecurrentConfig
    | RecurrentEncoderDecoderConfig
    | FixedWindowConfig
)
"""Configurations of bodies, one class per family."""

CausalConfig: TypeAlias = DecoderConfig | RecurrentConfig | FixedWindowConfig
"""The families that see each token after those before, and none that follows."""


# Heads

Pool = Literal["first", "mean", "last"]
"""Which hidden states stand for a whole text: the first, the mean of all, or the last."""


class LMHeadConfig(Config, frozen=True, tag_field="kind", tag="lm"):
    """Logits of the next token."""


class MaskedLMHeadConfig(Config, frozen=True, tag_field="kind", tag="masked-lm"):
    """Logits of masked tokens, from an extra layer (Devlin et al., 2019)."""


class ClassificationHeadConfig(Config, frozen=True, tag_field="kind", tag="classification"):
    """Logits of the label of a text."""

    pool: Pool = "mean"
    """Pooling of hidden states; a causal body uses its last state."""
    labels: tuple[str, ...] = ()
    """The labels. Default: those of the training data."""


class TokenClassificationHeadConfig(
    Config, frozen=True, tag_field="kind", tag="token-classification"
):
    """Logits of the label of each token."""

    labels: tuple[str, ...] = ()
    """The labels. Default: those of the training data."""


class EmbeddingHeadConfig(Config, frozen=True, tag_field="kind", tag="embedding"):
    """A vector of length 1 per text, close to those of matching texts."""

    pool: Pool = "mean"
    """Pooling of hidden states."""
    width: Positive = 128
    """Width of the vector."""
    temperature: Annotated[float, Meta(gt=0)] = 0.05
    """Divides similarities in training."""


HeadConfig: TypeAlias = (
    LMHeadConfig
    | MaskedLMHeadConfig
    | ClassificationHeadConfig
    | TokenClassificationHeadConfig
    | EmbeddingHeadConfig
)
