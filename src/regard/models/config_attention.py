"""The attention mechanisms, as data: a class for each of `regard.attention`."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, field

from regard.models.config_base import Config, Count, Positive, Seed


class SoftmaxConfig(Config, frozen=True, tag_field="kind", tag="softmax"):
    """Exact attention."""

    scaled: bool = True
    """Whether scores are divided by the square root of the head's width."""


class ArgmaxConfig(Config, frozen=True, tag_field="kind", tag="argmax"):
    """The value of the best key alone, with the softmax's gradient."""

    scaled: bool = True
    """Whether the softmax of the gradient is scaled."""


class LinformerConfig(Config, frozen=True, tag_field="kind", tag="linformer"):
    """Keys and values mixed down to k rows by learned matrices; not causal."""

    k: Positive = 64
    """Rows that the keys and values of a block are mixed down to."""
    shared: bool = True
    """Whether all heads share the matrices."""


class BigBirdConfig(Config, frozen=True, tag_field="kind", tag="bigbird"):
    """A window, global and random blocks."""

    block: Positive = 16
    """Tokens in a block."""
    window: Positive = 3
    """Blocks of the window, an odd number."""
    random: Count = 1
    """Random blocks for each block of queries and head."""
    global_blocks: Count = 1
    """Blocks at the beginning that all look at."""
    seed: Seed = 0
    """What decides the random blocks, with the layer: a model that is trained on keeps them."""

    def __post_init__(self) -> None:
        if self.window % 2 == 0:
            raise ValueError(
                f"window = {self.window} has no middle: choose an odd number of blocks"
            )


class SlidingWindowConfig(Config, frozen=True, tag_field="kind", tag="sliding-window"):
    """The tokens close by."""

    size: Count = 32
    """Tokens that a query looks back."""
    block: Positive = 16
    """Tokens that are computed together."""


class EluConfig(Config, frozen=True, tag_field="kind", tag="elu"):
    """Kernel attention with elu(x) + 1."""


class PolynomialConfig(Config, frozen=True, tag_field="kind", tag="polynomial"):
    """Kernel attention with (q·k)^p."""

    degree: Annotated[int, Meta(ge=1, le=4)] = 2
    """p; the number of features is the head's width to this power."""


class RandomFeaturesConfig(Config, frozen=True):
    """Kernel attention with random features."""

    features: Positive = 64
    """Directions drawn."""
    orthogonal: bool = True
    """Whether directions are orthogonal, in blocks of the head's width."""


class FourierConfig(RandomFeaturesConfig, frozen=True, tag_field="kind", tag="fourier"):
    """Kernel attention with random waves: the Gaussian kernel."""

    sigma: Annotated[float, Meta(gt=0)] | None = None
    """Width of the kernel; the fourth root of the head's width if not given."""


class FavorPositiveConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-positive"
):
    """Kernel attention with random exponentials: the softmax kernel (Performer)."""


class FavorTrigonometricConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-trigonometric"
):
    """Kernel attention with random waves: the softmax kernel; weights may be negative."""


class FavorHyperbolicConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-hyperbolic"
):
    """Kernel attention with pairs of random exponentials: the softmax kernel."""


class OtherConfig(Config, frozen=True, tag_field="kind", tag="other"):
    """A mechanism of an installed package, or of a file of your own."""

    mechanism: str
    """Its name (`regard attention list`), or FILE.py:CLASS."""
    options: dict[str, Any] = field(default_factory=dict)
    """What it is made with."""


AttentionConfig: TypeAlias = (
    SoftmaxConfig
    | ArgmaxConfig
    | LinformerConfig
    | BigBirdConfig
    | SlidingWindowConfig
    | EluConfig
    | PolynomialConfig
    | FourierConfig
    | FavorPositiveConfig
    | FavorTrigonometricConfig
    | FavorHyperbolicConfig
    | OtherConfig
)
