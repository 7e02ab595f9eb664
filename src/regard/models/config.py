"""What a model is made of, as data. Knows no torch, so that it loads in an instant."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from regard.models.config_attention import AttentionConfig, SoftmaxConfig
from regard.models.config_base import Config, Count, Positive, Probability
from regard.models.config_positions import (
    AbsoluteConfig,
    LearnedConfig,
    OneHotConfig,
    PositionsConfig,
    RotaryConfig,
    SinusoidalConfig,
)
from regard.models.config_recurrent import (
    RecurrentConfig,
    RecurrentEncoderDecoderConfig,
    WindowConfig,
)


class TransformerConfig(Config, frozen=True):
    """A stack of Transformer layers, and what goes into it."""

    block: Annotated[int, Meta(ge=8)] = 128
    """Longest sequence, in tokens."""
    n_layers: Positive = 4
    """Number of layers."""
    n_heads: Positive = 8
    """Number of attention heads."""
    n_kv_heads: Positive | None = None
    """Number of key/value heads, shared by consecutive heads; as many as heads if not given."""
    d_model: Positive = 256
    """Width of the residual stream."""
    d_ff: Positive | None = None
    """Width of the feed-forward layer; four times d_model if not given."""
    activation: Literal["gelu", "gelu-tanh", "relu", "relu2"] = "gelu"
    """Activation of the feed-forward layer; gelu-tanh is GPT-2's approximation of gelu, relu2 is
    relu squared."""
    norm: Literal["pre", "post"] = "pre"
    """Whether each branch reads what is normalised, or its sum with the stream is normalised."""
    norm_eps: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    """What is added to the variance that a norm divides by."""
    dropout: Probability = 0.1
    """Dropout of embeddings, residual branches, and a softmax's attention weights."""
    attention: AttentionConfig = SoftmaxConfig()
    """The attention mechanism."""
    positions: PositionsConfig = LearnedConfig()
    """The position encoding."""
    convolution: Annotated[int, Meta(ge=0, le=16)] = 0
    """Tokens that a causal convolution of queries, keys and values spans; 0: none; 4 is usual."""

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
        if isinstance(self.positions, OneHotConfig) and self.block > self.d_model:
            raise ValueError(
                f"one-hot positions of a block of {self.block} don't fit d_model = {self.d_model}: "
                "take a wider model, or a shorter block"
            )
        if width >= self.d_model:
            raise ValueError(
                f"concatenated positions of width {width} leave no room for tokens in "
                f"d_model = {self.d_model}"
            )

    @property
    def summary(self) -> str:
        """Its sizes, in words."""
        return (
            f"{self.n_layers} layers, {self.n_heads} heads, width {self.d_model}, "
            f"block {self.block}"
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
                return self.block
            case AbsoluteConfig(combine="concatenate", width=width):
                return width or self.d_model // 2
        return 0


class TiedConfig(TransformerConfig, frozen=True):
    """A stack whose head may share its embedding matrix."""

    tie_head: bool = False
    """Whether the head that scores tokens uses the embedding matrix."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_positions and self.tie_head:
            raise ValueError(
                "tie_head = true needs embeddings of width d_model: add the positions instead of "
                "concatenating them"
            )


class DecoderConfig(TiedConfig, frozen=True, tag_field="kind", tag="decoder"):
    """A decoder-only Transformer (GPT): each token looks at those before."""


class EncoderConfig(TiedConfig, frozen=True, tag_field="kind", tag="encoder"):
    """An encoder-only Transformer (BERT): all tokens look at one another."""

    segments: Count = 0
    """Kinds of segments that have an embedding each; 0: none."""


class EncoderDecoderConfig(Config, frozen=True, tag_field="kind", tag="encoder-decoder"):
    """An encoder that reads a source, and a decoder that looks at it while it writes a target."""

    encoder: TransformerConfig = TransformerConfig()
    """The side that reads."""
    decoder: TransformerConfig = TransformerConfig()
    """The side that writes."""

    @property
    def block(self) -> int:
        """Longest target, in tokens."""
        return self.decoder.block

    @property
    def summary(self) -> str:
        """Its sizes, in words."""
        return f"encoder: {self.encoder.summary}; decoder: {self.decoder.summary}"


ModelConfig: TypeAlias = (
    DecoderConfig
    | EncoderConfig
    | EncoderDecoderConfig
    | RecurrentConfig
    | RecurrentEncoderDecoderConfig
    | WindowConfig
)
"""What a model is made of, one class a family."""

CausalConfig: TypeAlias = DecoderConfig | RecurrentConfig | WindowConfig
"""The families that see each token after those before, and none that follows."""
