"""What a model is made of, as data. Knows no torch, so that it loads in an instant."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**32)]
Probability = Annotated[float, Meta(ge=0, lt=1)]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all configuration: frozen, by keyword, unknown fields refused."""


class SoftmaxConfig(Config, frozen=True, tag_field="kind", tag="softmax"):
    """Exact attention."""


AttentionConfig: TypeAlias = SoftmaxConfig


class LearnedConfig(Config, frozen=True, tag_field="kind", tag="learned"):
    """One learned vector a position, added to the embeddings."""


class RotaryConfig(Config, frozen=True, tag_field="kind", tag="rotary"):
    """Queries and keys turned by their positions."""

    base: Annotated[float, Meta(gt=1)] = 10_000.0
    """The longest wavelength is about 2π times this."""


class NoPositionsConfig(Config, frozen=True, tag_field="kind", tag="none"):
    """No positions: only the causal mask tells the order."""


PositionsConfig: TypeAlias = LearnedConfig | RotaryConfig | NoPositionsConfig


class ModelConfig(Config, frozen=True):
    """A decoder-only Transformer."""

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
    activation: Literal["gelu", "relu", "relu2"] = "gelu"
    """Activation of the feed-forward layer; relu2 is relu squared."""
    dropout: Probability = 0.1
    """Dropout of embeddings, attention weights and residual branches."""
    tie_head: bool = False
    """Whether the head uses the embedding matrix."""
    attention: AttentionConfig = SoftmaxConfig()
    """The attention mechanism."""
    positions: PositionsConfig = LearnedConfig()
    """The position encoding."""

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

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    @property
    def kv_heads(self) -> int:
        return self.n_kv_heads or self.n_heads
