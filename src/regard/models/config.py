"""Configuration of the bodies of models. Imports no torch."""

from typing import Annotated, Any, Literal, Self, TypeAlias

from msgspec import Meta, structs

from regard.attention.config import AttentionConfig, SoftmaxConfig
from regard.config import LONGEST, Config, Count, Positive, Probability
from regard.models.ngram_config import NgramConfig
from regard.models.pattern import (
    Activation,
    LayerConfig,
    Width,
    entry_of,
    expand,
    from_text,
    require_canon,
    require_fit,
    require_value_heads,
)
from regard.models.recurrent_config import FixedWindowConfig as FixedWindowConfig
from regard.models.recurrent_config import RecurrentConfig as RecurrentConfig
from regard.models.recurrent_config import (
    RecurrentEncoderDecoderConfig as RecurrentEncoderDecoderConfig,
)
from regard.models.recurrent_config import RecurrentLayersConfig as RecurrentLayersConfig
from regard.positions.config import (
    BIASES,
    AbsoluteConfig,
    DynamicScalingConfig,
    LearnedConfig,
    NoPositionsConfig,
    OneHotConfig,
    PositionsConfig,
    RotaryConfig,
    SinusoidalConfig,
)


class TransformerConfig(Config, frozen=True):
    """A stack of Transformer layers with its embeddings."""

    context_length: Annotated[int, Meta(ge=8, le=LONGEST)] = 128
    """Longest sequence, in tokens."""
    n_layers: Positive = 4
    """Number of layers."""
    n_heads: Positive = 8
    """Number of attention heads."""
    n_kv_heads: Positive | None = None
    """Number of key/value heads, shared by consecutive heads. Default: n_heads."""
    n_value_heads: Positive | None = None
    """Number of value heads of a gated linear recurrence, each with a state; consecutive ones share
    a key head. Default: n_kv_heads."""
    d_model: Positive = 256
    """Width of the residual stream."""
    head_dim: Positive | None = None
    """Width of a head. Default: d_model / n_heads."""
    qkv_bias: bool = True
    """Whether the projections to queries, keys and values have a bias."""
    o_bias: bool = True
    """Whether the output projection of attention has a bias."""
    qk_norm: bool = False
    """RMS norm of each head's queries and keys, before rotary positions (Qwen3)."""
    d_ff: Positive | None = None
    """Width of the feed-forward layer. Default: four times d_model."""
    activation: Activation = "gelu"
    """Activation of the feed-forward layer; gelu-tanh is GPT-2's approximation of gelu, relu2 is
    relu squared."""
    gated: bool = False
    """Whether a second projection multiplies the activation: SwiGLU with silu, GeGLU with gelu."""
    ff_bias: bool = True
    """Whether the feed-forward layer has biases."""
    norm: Literal["pre", "post", "sandwich"] = "pre"
    """Norm before each branch, after each residual sum, or before and after each branch (Gemma)."""
    norm_type: Literal["layer-norm", "rms-norm", "zero-centered-rms-norm"] = "layer-norm"
    """Layer norm, RMS norm (no mean, no bias), or RMS norm times 1 + weight (Gemma), which also
    applies to qk_norm."""
    norm_eps: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    """Added to the variance in norms."""
    parallel_residual: bool = False
    """Whether attention and feed-forward layer read the same input (GPT-NeoX)."""
    scale_embeddings: bool = False
    """Whether token embeddings are multiplied by √d_model."""
    dropout: Probability = 0.1
    """Dropout of embeddings, residual branches, and attention weights if supported."""
    attention_dropout: Probability | None = None
    """Dropout of attention weights; above 0, a mechanism must support it. Default: dropout."""
    attention: AttentionConfig = SoftmaxConfig()
    """The attention mechanism."""
    positions: PositionsConfig = LearnedConfig()
    """The position encoding."""
    window: Count = 0
    """Tokens that a query attends to, itself included; 0: all. In an encoder, the window extends
    equally to the other side."""
    short_conv: Width = 0
    """Width of a causal convolution of queries, keys and values, in tokens; 0: none; 4 is usual."""
    canon: str = "off"
    """Places of Canon layers, a subset of ABCD: before attention (A), of queries, keys and values
    (B), before the feed-forward layer (C), before its activation (D); or off."""
    canon_width: Annotated[int, Meta(ge=1, le=16)] = 4
    """Width of the convolutions of Canon layers, in tokens."""
    value_residual: bool = False
    """Whether values of layers are mixed with those of the first layer, by learned weights."""
    value_embedding: bool = False
    """Whether layers have a table of vectors that are added to the values, by token."""
    ngrams: NgramConfig | None = None
    """Hashed embeddings of n-grams. Default: none."""
    pattern: tuple[LayerConfig, ...] = ()
    """Layers of different kinds, repeated over the stack. Default: all layers alike."""

    def __post_init__(self) -> None:
        if self.head_dim is None and self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads = {self.n_heads} doesn't divide d_model = {self.d_model}: "
                "choose a divisor of d_model, or set head_dim"
            )
        if self.n_heads % self.kv_heads:
            raise ValueError(
                f"n_kv_heads = {self.kv_heads} doesn't divide n_heads = {self.n_heads}: "
                "choose a divisor of n_heads"
            )
        self.attention.require_width(self.d_head)
        if self.n_value_heads is not None:
            require_value_heads(self.n_heads, self.kv_heads, self.n_value_heads)
        if self.canon != "off":
            require_canon(self.canon, self.short_conv)
        if self.parallel_residual and self.norm == "post":
            raise ValueError("parallel_residual = true needs norm = pre or sandwich")
        self._check_rotary_positions()
        self._check_absolute_positions()
        if self.ngrams is not None:
            self.ngrams.require_width(self.d_model - self.d_positions)
        if self.pattern:
            self._check_pattern()

    def _check_rotary_positions(self) -> None:
        if not isinstance(self.positions, RotaryConfig):
            return
        width = self.rotary_width
        called = "head width" if width == self.d_head else "width of the rotated part of a head"
        if not width:
            raise ValueError("rotary positions need attention.d_rope ≥ 2, not 0")
        if self.positions.dim is None and width % 2:
            raise ValueError(f"rotary positions need an even {called}, not {width}")
        dim = self.positions.dim or width
        if dim % 2 or dim > width:
            raise ValueError(
                f"positions.dim = {dim}: choose an even number up to the {called} {width}"
            )
        if isinstance(self.positions.scaling, DynamicScalingConfig) and dim < 4:
            raise ValueError("dynamic scaling needs at least four rotated dimensions")

    def _check_absolute_positions(self) -> None:
        match self.positions:
            case AbsoluteConfig(combine="add", width=int(width)):
                raise ValueError(
                    f"positions.width = {width} is for concatenated positions; added ones have "
                    "d_model: leave it out, or set positions.combine=concatenate"
                )
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

    def _check_pattern(self) -> None:
        rotary = isinstance(self.positions, RotaryConfig | NoPositionsConfig)
        biased = isinstance(self.positions, BIASES)
        require_fit(self.pattern, self.n_layers, rotary=rotary, biased=biased)
        heads = list[tuple[int, int]]()
        for i, entry in enumerate(self.pattern):
            try:
                layer = self._with(entry)
            except ValueError as error:
                raise ValueError(f"pattern[{i}]: {error}") from None
            heads.append((layer.value_heads, layer.d_head))
            if layer.value_residual and heads[-1] != heads[0]:
                (first, width), (number, other) = heads[0], heads[-1]
                raise ValueError(
                    f"pattern[{i}]: value_residual = true needs the {first} value heads of width "
                    f"{width} of the first layer, not {number} of width {other}; set "
                    "value_residual = false, or equal numbers"
                )

    def _with(self, entry: LayerConfig) -> Self:
        return structs.replace(self, pattern=(), **entry.own)

    def layer(self, index: int) -> Self:
        """Return the configuration of a layer: this one with the fields that the pattern sets."""
        return self._with(entry_of(self.pattern, index)) if self.pattern else self

    @property
    def layers(self) -> list[Self]:
        """The configuration of each layer."""
        return [self.layer(i) for i in range(self.n_layers)]

    @classmethod
    def list_of(cls, field: str, values: dict[str, Any]) -> tuple[type[Config], list[Any]] | None:
        """Return the entries of `pattern`; for `layers`, expand them to one per layer."""
        if field == "layers":
            values["pattern"] = expand(values["pattern"], int(values["n_layers"]))
        return (LayerConfig, values["pattern"]) if field in ("layers", "pattern") else None

    @classmethod
    def from_text(cls, field: str, text: str) -> Any:
        """Return the entries of a pattern such as gated-deltanet*3+softmax."""
        return from_text(text) if field == "pattern" else text

    @property
    def summary(self) -> str:
        """Description of mechanisms and sizes."""
        entries = self.pattern or (LayerConfig(),)
        kinds = dict.fromkeys((one.attention or self.attention).called for one in entries)
        return (
            f"{self.n_layers} layers of {' and '.join(kinds)}, {self.n_heads} heads, "
            f"width {self.d_model}, context length {self.context_length}"
        )

    @property
    def least_weights(self) -> int:
        """Lower bound of the number of weights."""
        hashed = 0 if self.ngrams is None else self.ngrams.n_parameters(self.d_model)
        layer = self.d_model * 2 * (self.d_model + (self.d_ff or 4 * self.d_model))
        return self.n_layers * layer + hashed

    @property
    def d_head(self) -> int:
        return self.head_dim or self.d_model // self.n_heads

    @property
    def rotary_width(self) -> int:
        """Width of the vectors that rotary positions rotate."""
        return self.attention.rotary_width(self.d_head)

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads

    @property
    def value_heads(self) -> int:
        return self.n_value_heads or self.kv_heads

    @property
    def d_attention(self) -> int:
        """Width of all heads' outputs."""
        return max(self.n_heads, self.value_heads) * self.d_head

    @property
    def window_size(self) -> int | None:
        """Largest distance between a query and its keys, in positions; None: no limit."""
        return self.window - 1 if self.window else None

    @property
    def convolves_qkv(self) -> bool:
        """Whether queries, keys and values pass through a short convolution."""
        return self.short_conv > 0 or "B" in self.canon

    @property
    def d_positions(self) -> int:
        """Width of positions that are concatenated with embeddings; 0 if they are added."""
        match self.positions:
            case OneHotConfig(combine="concatenate"):
                return self.context_length
            case AbsoluteConfig(combine="concatenate", width=width):
                return width or self.d_model // 2
        return 0


def _require_full_width(stack: TransformerConfig, *, tied: bool) -> None:
    if tied and stack.d_positions:
        raise ValueError(
            "tie_head = true needs embeddings of width d_model: add the positions instead of "
            "concatenating them"
        )


class TiedConfig(TransformerConfig, frozen=True):
    """A stack whose head may share its embedding matrix."""

    tie_head: bool = False
    """Whether the output head uses the embedding matrix."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_full_width(self, tied=self.tie_head)


class DecoderConfig(TiedConfig, frozen=True, tag_field="kind", tag="decoder"):
    """A decoder-only Transformer (GPT), with causal attention."""

    logit_softcap: Annotated[float, Meta(gt=0)] | None = None
    """Bound c of the logits of tokens: c·tanh(logit / c) instead of each logit (Gemma 2). Default:
    none."""


NOT_OF_PERCEIVERS = (
    *("pattern", "window", "short_conv", "canon", "qk_norm", "parallel_residual"),
    *("ngrams", "value_embedding", "value_residual"),
)
"""Options that a perceiver doesn't have."""


class PerceiverConfig(TiedConfig, frozen=True, tag_field="kind", tag="perceiver"):
    """A causal Transformer whose inner layers read latents: one for each of the first tokens."""

    n_latents: Positive = 64
    """Number of latents, one per token. No other token depends on the tokens after these."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_layers < 3:
            raise ValueError(
                f"n_layers = {self.n_layers}: kind = perceiver has a first, a last and inner "
                "layers; choose 3 or more"
            )
        if self.n_latents > self.context_length:
            raise ValueError(
                f"n_latents = {self.n_latents} is more than context_length = "
                f"{self.context_length}; choose fewer"
            )
        for field in NOT_OF_PERCEIVERS:
            if getattr(self, field) not in (False, 0, (), None, "off"):
                raise ValueError(f"{field}: is not supported by kind = perceiver; leave it out")
        if self.norm != "pre":
            raise ValueError(
                f"norm = {self.norm}: is not supported by kind = perceiver; leave it out"
            )
        if not isinstance(self.positions, AbsoluteConfig | NoPositionsConfig):
            raise ValueError(
                f"positions.kind = {self.positions.__struct_config__.tag}: kind = perceiver adds "
                "positions to the embeddings; choose learned, sinusoidal, one-hot or none"
            )

    @property
    def layers(self) -> list[Self]:
        """The configuration of each inner layer, which attends to latents alone."""
        return [self] * (self.n_layers - 2)

    @property
    def cross(self) -> AttentionConfig:
        """The mechanism of the first and the last layer."""
        return self.attention

    @property
    def summary(self) -> str:
        """Description of the sizes."""
        return f"{super().summary}, {self.n_latents} latents"


class EncoderConfig(TiedConfig, frozen=True, tag_field="kind", tag="encoder"):
    """An encoder-only Transformer (BERT), with bidirectional attention."""

    n_token_types: Count = 0
    """Number of token types, each with an embedding; 0: none."""


CROSS = ("cross", "key_lengths")
"""Features that cross-attention requires of a mechanism."""


class TargetConfig(TransformerConfig, frozen=True):
    """A decoder with cross-attention to a source."""

    cross_attention: AttentionConfig | None = None
    """Mechanism of cross-attention. Default: that of the layer if supported, else softmax."""

    @property
    def cross(self) -> AttentionConfig:
        """The mechanism of cross-attention."""
        if self.cross_attention is not None:
            return self.cross_attention
        can = all(map(self.attention.supported.has, CROSS))
        return self.attention if can else SoftmaxConfig()


class EncoderDecoderConfig(Config, frozen=True, tag_field="kind", tag="encoder-decoder"):
    """An encoder of the source, and a decoder of the target with cross-attention to it."""

    encoder: TransformerConfig = TransformerConfig()
    """The encoder."""
    decoder: TargetConfig = TargetConfig()
    """The decoder."""
    share_embeddings: bool = False
    """Whether encoder and decoder share one embedding matrix."""
    tie_head: bool = False
    """Whether the output head uses the decoder's embedding matrix."""
    scale_head: bool = False
    """Whether the input of the output head is divided by √d_model (T5 with a tied head)."""
    head_bias: bool = False
    """Whether the output head has a bias (BART)."""

    def __post_init__(self) -> None:
        if self.decoder.parallel_residual:
            raise ValueError("decoder.parallel_residual: a decoder with cross-attention has none")
        widths = [part.d_model - part.d_positions for part in (self.encoder, self.decoder)]
        if self.share_embeddings and widths[0] != widths[1]:
            raise ValueError(
                f"share_embeddings = true needs embeddings of one width, not {widths[0]} and "
                f"{widths[1]}"
            )
        _require_full_width(self.decoder, tied=self.tie_head)

    @property
    def context_length(self) -> int:
        """Longest target, in tokens."""
        return self.decoder.context_length

    @property
    def summary(self) -> str:
        """Description of the sizes."""
        return f"encoder: {self.encoder.summary}; decoder: {self.decoder.summary}"

    @property
    def least_weights(self) -> int:
        """Lower bound of the number of weights."""
        return self.encoder.least_weights + self.decoder.least_weights

    @property
    def d_model(self) -> int:
        """Width of the decoder."""
        return self.decoder.d_model


ModelConfig: TypeAlias = (
    DecoderConfig
    | PerceiverConfig
    | EncoderConfig
    | EncoderDecoderConfig
    | RecurrentConfig
    | RecurrentEncoderDecoderConfig
    | FixedWindowConfig
)
"""Configurations of bodies, one class per family."""

CausalConfig: TypeAlias = DecoderConfig | PerceiverConfig | RecurrentConfig | FixedWindowConfig
"""The causal families: each token depends on itself and earlier tokens."""
