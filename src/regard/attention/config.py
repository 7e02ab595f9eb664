"""Configurations of the built-in attention mechanisms, which build them. Imports no torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from regard.attention.registry import CHECKED_SHAPE, AttentionConfig, LayerShape
from regard.config import Config, Count, Positive, Seed

if TYPE_CHECKING:
    from regard.attention.base import Attention
    from regard.attention.feature_maps import FeatureMap
    from regard.attention.kernel import KernelAttention

__all__ = [
    "ArgmaxConfig",
    "AttentionConfig",
    "BigBirdConfig",
    "EluConfig",
    "FavorHyperbolicConfig",
    "FavorPositiveConfig",
    "FavorTrigonometricConfig",
    "FourierConfig",
    "LayerShape",
    "LinformerConfig",
    "PolynomialConfig",
    "SlidingWindowConfig",
    "SoftmaxConfig",
]


class SoftmaxConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="softmax"):
    """Exact softmax attention."""

    time: ClassVar = "n²·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Vaswani et al., 2017"

    scaled: bool = True
    """Whether scores are divided by √d of the head."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.softmax import Softmax

        return Softmax(scaled=self.scaled, dropout=shape.dropout)


class ArgmaxConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="argmax"):
    """The value of the highest-scoring key, with the gradient of softmax."""

    time: ClassVar = "n²·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Bengio et al., 2013"

    scaled: bool = True
    """Whether the scores of the gradient's softmax are divided by √d."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.softmax import Argmax

        return Argmax(scaled=self.scaled)


class LinformerConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="linformer"):
    """Keys and values projected to k rows by learned matrices; not causal."""

    time: ClassVar = "n·k·d"
    paper: ClassVar = "Wang et al., 2020"
    check_options: ClassVar[Mapping[str, Any]] = {"k": 3}

    k: Positive = 64
    """Rows of the projected keys and values."""
    shared: bool = True
    """Whether all heads share the projections."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.linformer import Linformer

        length, heads = shape.context_length, None if self.shared else shape.n_kv_heads
        return Linformer(length=length, k=min(self.k, length), heads=heads)


class BigBirdConfig(AttentionConfig, Config, frozen=True, tag_field="kind", tag="bigbird"):
    """Attention to a window, global blocks and random blocks."""

    time: ClassVar = "n·b·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Zaheer et al., 2020"
    check_options: ClassVar[Mapping[str, Any]] = {"block_size": 2}

    block_size: Positive = 16
    """Tokens per block."""
    window: Positive = 3
    """Blocks in the window, an odd number."""
    random: Count = 1
    """Random blocks per block of queries and head."""
    global_blocks: Count = 1
    """Blocks at the beginning to which all tokens attend."""
    seed: Seed = 0
    """Seed of the random blocks, together with the layer; finetuning keeps them."""

    def __post_init__(self) -> None:
        if self.window % 2 == 0:
            raise ValueError(
                f"window = {self.window} has no middle: choose an odd number of blocks"
            )

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.block_sparse import BigBird

        options = msgspec.structs.asdict(self) | {"seed": shape.seeded(self.seed)}
        return BigBird(max_keys=shape.context_length, **options)


class SlidingWindowConfig(
    AttentionConfig, Config, frozen=True, tag_field="kind", tag="sliding-window"
):
    """Attention to the preceding tokens in a window."""

    time: ClassVar = "n·w·d"
    state: ClassVar = "n·d"
    paper: ClassVar = "Beltagy et al., 2020"
    check_options: ClassVar[Mapping[str, Any]] = {"size": 3, "block_size": 2}

    size: Count = 32
    """Number of preceding tokens in the window."""
    block_size: Positive = 16
    """Tokens per block of the computation."""

    def build(self, shape: LayerShape) -> "Attention":
        from regard.attention.block_sparse import SlidingWindow

        return SlidingWindow(size=self.size, block_size=self.block_size)


class KernelConfig(AttentionConfig, Config, frozen=True):
    """Kernel attention with a feature map."""

    def feature_map(self, shape: LayerShape) -> "FeatureMap":
        """Make the feature map of a layer."""
        raise NotImplementedError

    def build(self, shape: LayerShape) -> "KernelAttention":
        from regard.attention.kernel import KernelAttention

        return KernelAttention(self.feature_map(shape))

    @classmethod
    def example(cls) -> "KernelAttention":
        """Build one whose chunks are shorter than the rows of the contract."""
        from regard.attention.kernel import KernelAttention

        return KernelAttention(cls(**cls.check_options).feature_map(CHECKED_SHAPE), chunk=4)


class EluConfig(KernelConfig, frozen=True, tag_field="kind", tag="elu"):
    """Kernel attention with elu(x) + 1."""

    time: ClassVar = "n·d·d"
    state: ClassVar = "d·d"
    paper: ClassVar = "Katharopoulos et al., 2020"

    def feature_map(self, shape: LayerShape) -> "FeatureMap":
        from regard.attention.feature_maps import Elu

        return Elu()


class PolynomialConfig(KernelConfig, frozen=True, tag_field="kind", tag="polynomial"):
    """Kernel attention with (q·k)^p."""

    time: ClassVar = "n·d^p·d"
    state: ClassVar = "d^p·d"
    paper: ClassVar = "Tsai et al., 2019"
    check_inputs: ClassVar = (0.5, 1.5)

    degree: Annotated[int, Meta(ge=1, le=4)] = 2
    """p; the number of features is the head's width to this power."""

    def feature_map(self, shape: LayerShape) -> "FeatureMap":
        from regard.attention.feature_maps import Polynomial

        return Polynomial(degree=self.degree)


class RandomFeaturesConfig(KernelConfig, frozen=True):
    """Kernel attention with random features, drawn like weights."""

    drawn: ClassVar[str]
    """The name of the feature map."""

    features: Positive = 64
    """Number of random directions."""
    orthogonal: bool = True
    """Whether directions are orthogonal, in blocks of the head's width."""

    def feature_map(self, shape: LayerShape) -> "FeatureMap":
        from regard.attention import feature_maps

        options, seed = msgspec.structs.asdict(self), shape.seeded(shape.seed)
        made: FeatureMap = getattr(feature_maps, self.drawn)(d=shape.d_head, seed=seed, **options)
        return made


class FourierConfig(RandomFeaturesConfig, frozen=True, tag_field="kind", tag="fourier"):
    """Kernel attention with random Fourier features of the Gaussian kernel."""

    drawn: ClassVar = "Fourier"
    time: ClassVar = "n·2m·d"
    state: ClassVar = "2m·d"
    paper: ClassVar = "Rahimi & Recht, 2007"
    check_options: ClassVar[Mapping[str, Any]] = {"features": 256}
    check_inputs: ClassVar = (-0.5, 0.5)

    sigma: Annotated[float, Meta(gt=0)] | None = None
    """Width of the kernel. Default: fourth root of the head's width."""


class FavorPositiveConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-positive"
):
    """Kernel attention with positive random features of the softmax kernel (Performer)."""

    drawn: ClassVar = "FavorPositive"
    time: ClassVar = "n·m·d"
    state: ClassVar = "m·d"
    paper: ClassVar = "Choromanski et al., 2021"
    check_options: ClassVar[Mapping[str, Any]] = {"features": 6}


class FavorTrigonometricConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-trigonometric"
):
    """Kernel attention with trigonometric random features; weights may be negative."""

    drawn: ClassVar = "FavorTrigonometric"
    time: ClassVar = "n·2m·d"
    state: ClassVar = "2m·d"
    paper: ClassVar = "Choromanski et al., 2021"
    check_options: ClassVar[Mapping[str, Any]] = {"features": 256}
    check_inputs: ClassVar = (-0.5, 0.5)


class FavorHyperbolicConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-hyperbolic"
):
    """Kernel attention with hyperbolic random features of the softmax kernel."""

    drawn: ClassVar = "FavorHyperbolic"
    time: ClassVar = "n·2m·d"
    state: ClassVar = "2m·d"
    paper: ClassVar = "Choromanski et al., 2021"
    check_options: ClassVar[Mapping[str, Any]] = {"features": 6}
