"""Configurations of kernel attention, one for each feature map. Imports no torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from regard.attention.config import (
    CHECKED_SHAPE,
    LINEAR_MASKS,
    AttentionConfig,
    LayerShape,
    Support,
)
from regard.config import Config, Positive

if TYPE_CHECKING:
    from regard.attention.feature_maps import FeatureMap
    from regard.attention.kernel import KernelAttention


class KernelConfig(AttentionConfig, Config, frozen=True):
    """Kernel attention with a feature map."""

    supports: ClassVar = Support(masks=LINEAR_MASKS, cross=True, decoding=True)

    def feature_map(self, shape: LayerShape) -> "FeatureMap":
        """Build the feature map of a layer."""
        raise NotImplementedError

    def build(self, shape: LayerShape) -> "KernelAttention":
        from regard.attention.kernel import KernelAttention

        return KernelAttention(self.feature_map(shape))

    @classmethod
    def example(cls, shape: LayerShape = CHECKED_SHAPE) -> "KernelAttention":
        """Build a mechanism whose chunks are shorter than the rows of the contract."""
        from regard.attention.kernel import KernelAttention

        return KernelAttention(cls(**cls.check_options).feature_map(shape), chunk=4)


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
    """Power p. The number of features grows as d^p, d the width of a head: d(d + 1)/2 for p = 2."""

    def feature_map(self, shape: LayerShape) -> "FeatureMap":
        from regard.attention.feature_maps import Polynomial

        return Polynomial(d=shape.d_head, degree=self.degree)


class RandomFeaturesConfig(KernelConfig, frozen=True):
    """Kernel attention with random features, drawn like weights."""

    drawn: ClassVar[str]
    """Name of the class in `feature_maps`."""
    time: ClassVar = "n·2m·d"
    state: ClassVar = "2m·d"
    paper: ClassVar = "Choromanski et al., 2021"

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
    check_options: ClassVar[Mapping[str, Any]] = {"features": 6}


class FavorTrigonometricConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-trigonometric"
):
    """Kernel attention with trigonometric random features; weights may be negative."""

    drawn: ClassVar = "FavorTrigonometric"
    check_options: ClassVar[Mapping[str, Any]] = {"features": 256}
    check_inputs: ClassVar = (-0.5, 0.5)


class FavorHyperbolicConfig(
    RandomFeaturesConfig, frozen=True, tag_field="kind", tag="favor-hyperbolic"
):
    """Kernel attention with hyperbolic random features of the softmax kernel."""

    drawn: ClassVar = "FavorHyperbolic"
    check_options: ClassVar[Mapping[str, Any]] = {"features": 6}
