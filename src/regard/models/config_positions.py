"""The position encodings, as data: a class for each of `regard.positions`."""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from regard.models.config_base import Config, Count, Positive


class AbsoluteConfig(Config, frozen=True):
    """Vectors of positions, beside or on the embeddings."""

    combine: Literal["add", "concatenate"] = "add"
    """Whether they are added to the embeddings, or make up a part of their width."""
    width: Positive | None = None
    """Width of the part if concatenated; half of d_model if not given."""

    def __post_init__(self) -> None:
        if self.width is not None and self.combine == "add":
            raise ValueError(
                f"width = {self.width} is for concatenated positions; added ones have d_model: "
                "leave it out, or set combine to concatenate"
            )


class LearnedConfig(AbsoluteConfig, frozen=True, tag_field="kind", tag="learned"):
    """One learned vector a position."""


class SinusoidalConfig(AbsoluteConfig, frozen=True, tag_field="kind", tag="sinusoidal"):
    """Sines and cosines of positions."""

    base: Annotated[float, Meta(gt=1)] = 10_000.0
    """The longest wavelength is about 2π times this."""


class OneHotConfig(Config, frozen=True, tag_field="kind", tag="one-hot"):
    """One coordinate a position."""

    combine: Literal["add", "concatenate"] = "add"
    """Whether they are added to the embeddings, or make up as much of their width as the block."""


class RelativeBiasConfig(Config, frozen=True, tag_field="kind", tag="relative-bias"):
    """A learned number a head and distance, added to scores."""

    clip: Count | None = None
    """The farthest distance with a number of its own; all have one if not given."""


class ShawVectorsConfig(Config, frozen=True, tag_field="kind", tag="shaw-vectors"):
    """Learned vectors a distance, added to keys and values."""

    clip: Count = 16
    """The farthest distance with vectors of its own."""


class T5BiasConfig(Config, frozen=True, tag_field="kind", tag="t5-bias"):
    """A learned number a head and bucket of distances, added to scores."""

    buckets: Annotated[int, Meta(ge=2)] = 32
    """Buckets; the first half holds one distance each, the others ever more."""
    max_distance: Annotated[int, Meta(ge=2)] = 128
    """All beyond share the last bucket."""

    def __post_init__(self) -> None:
        if self.max_distance <= self.buckets // 2:
            raise ValueError(
                f"max_distance = {self.max_distance} is among the {self.buckets // 2} distances "
                f"with a bucket of their own: choose more than {self.buckets // 2}"
            )


class AlibiConfig(Config, frozen=True, tag_field="kind", tag="alibi"):
    """Scores fall with distance, in each head at its own rate."""


class RotaryConfig(Config, frozen=True, tag_field="kind", tag="rotary"):
    """Queries and keys turned by their positions."""

    base: Annotated[float, Meta(gt=1)] = 10_000.0
    """The longest wavelength is about 2π times this."""


class NoPositionsConfig(Config, frozen=True, tag_field="kind", tag="none"):
    """No positions: only the causal mask tells the order."""


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
