"""Configuration of position encodings. Imports no torch."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from regard.config import LONGEST, Config, Positive

Distance: TypeAlias = Annotated[int, Meta(ge=0, le=LONGEST)]
"""A number of positions, of which a table has an entry for each."""


class InputPositionsConfig(Config, frozen=True):
    """Base of position vectors of the input."""

    combine: Literal["add", "concatenate"] = "add"
    """Added to the embeddings, or concatenated with them."""


class AbsoluteConfig(InputPositionsConfig, frozen=True):
    """Position vectors of any width."""

    width: Positive | None = None
    """Width if concatenated. Default: half of d_model."""


class LearnedConfig(AbsoluteConfig, frozen=True, tag_field="kind", tag="learned"):
    """One learned vector per position."""

    offset: Distance = 0
    """Number of unused vectors before the first position: 2 in BART, pad + 1 in RoBERTa."""


class SinusoidalConfig(AbsoluteConfig, frozen=True, tag_field="kind", tag="sinusoidal"):
    """Sines and cosines of the position."""

    base: Annotated[float, Meta(gt=1)] = 10_000.0
    """The longest wavelength is about 2π times this."""


class OneHotConfig(InputPositionsConfig, frozen=True, tag_field="kind", tag="one-hot"):
    """One unit vector per position."""


ScalingFactor: TypeAlias = Annotated[float, Meta(ge=1)]


class RelativeBiasConfig(Config, frozen=True, tag_field="kind", tag="relative-bias"):
    """A learned number per head and distance, added to the scores."""

    clip: Distance | None = None
    """Largest distance with its own number. Default: no limit."""


class ShawVectorsConfig(Config, frozen=True, tag_field="kind", tag="shaw-vectors"):
    """Learned vectors per distance, added to keys and values."""

    clip: Distance = 16
    """Largest distance with its own vectors."""


class T5BiasConfig(Config, frozen=True, tag_field="kind", tag="t5-bias"):
    """A learned number per head and bucket of distances, added to the scores."""

    buckets: Annotated[int, Meta(ge=2, le=LONGEST)] = 32
    """Number of buckets; the first half holds one distance each, the others increasingly many."""
    max_distance: Annotated[int, Meta(ge=2, le=LONGEST)] = 128
    """Distances from here on share the last bucket."""
    bidirectional: bool = False
    """Whether half of the buckets are for keys after the query, as in T5's encoder."""

    def __post_init__(self) -> None:
        if self.bidirectional and (self.buckets % 2 or self.buckets < 4):
            raise ValueError(
                f"buckets = {self.buckets} can't be halved between two directions: choose an even "
                "number of at least 4"
            )
        exact = self.buckets // (4 if self.bidirectional else 2)
        if self.max_distance <= exact:
            raise ValueError(
                f"max_distance = {self.max_distance} is among the {exact} distances "
                f"with a bucket of their own: choose more than {exact}"
            )


class AlibiConfig(Config, frozen=True, tag_field="kind", tag="alibi"):
    """Scores decrease linearly with distance, with a slope per head."""


class LinearScalingConfig(Config, frozen=True, tag_field="kind", tag="linear"):
    """Positions divided by a factor (Chen et al., 2023)."""

    factor: ScalingFactor = 2.0
    """Ratio of the new to the original context length."""


class DynamicScalingConfig(Config, frozen=True, tag_field="kind", tag="dynamic"):
    """A base that grows with the length of texts longer than the original context length."""

    factor: ScalingFactor = 2.0
    """Growth of the base with the length of the text."""
    original_context_length: Positive = 2048
    """Context length in training; positions of shorter texts are not scaled."""


class Llama3ScalingConfig(Config, frozen=True, tag_field="kind", tag="llama3"):
    """Low frequencies divided by a factor, high ones kept (Llama 3.1)."""

    factor: ScalingFactor = 8.0
    """Divides the frequencies of long wavelengths."""
    low_freq_factor: Annotated[float, Meta(gt=0)] = 1.0
    """Wavelengths above the original context length divided by this are scaled in full."""
    high_freq_factor: Annotated[float, Meta(gt=0)] = 4.0
    """Wavelengths below the original context length divided by this are kept."""
    original_context_length: Positive = 8192
    """Context length of the training."""

    def __post_init__(self) -> None:
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"high_freq_factor = {self.high_freq_factor} must be greater than "
                f"low_freq_factor = {self.low_freq_factor}"
            )


RotaryScalingConfig: TypeAlias = LinearScalingConfig | DynamicScalingConfig | Llama3ScalingConfig


class RotaryConfig(Config, frozen=True, tag_field="kind", tag="rotary"):
    """Queries and keys rotated by their positions."""

    base: Annotated[float, Meta(gt=1)] = 10_000.0
    """The longest wavelength is about 2π times this."""
    dim: Positive | None = None
    """Number of rotated dimensions of each head, the first ones. Default: all."""
    scaling: RotaryScalingConfig | None = None
    """Change of the frequencies for texts longer than in training. Default: none."""


class NoPositionsConfig(Config, frozen=True, tag_field="kind", tag="none"):
    """No positions; only the causal mask carries order."""


BIASES = (RelativeBiasConfig, ShawVectorsConfig, T5BiasConfig, AlibiConfig)
"""Positions that are added to the scores, by head."""

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
