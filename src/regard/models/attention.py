"""From configuration to attention mechanism."""

import msgspec
import numpy as np
import torch

from regard.attention import (
    Argmax,
    Attention,
    BigBird,
    KernelAttention,
    Linformer,
    SlidingWindow,
    Softmax,
)
from regard.attention.features import (
    Elu,
    FavorHyperbolic,
    FavorPositive,
    FavorTrigonometric,
    Fourier,
    Polynomial,
    RandomFeatures,
)
from regard.attention.registry import OWN, find_any
from regard.errors import UserError
from regard.models.config import TransformerConfig
from regard.models.config_attention import (
    ArgmaxConfig,
    BigBirdConfig,
    EluConfig,
    FavorHyperbolicConfig,
    FavorPositiveConfig,
    FavorTrigonometricConfig,
    FourierConfig,
    LinformerConfig,
    OtherConfig,
    PolynomialConfig,
    RandomFeaturesConfig,
    SlidingWindowConfig,
    SoftmaxConfig,
)


def make_attention(config: TransformerConfig, layer: int) -> Attention:
    """The mechanism of a layer.

    Random features are drawn like weights, by torch's seed, and saved with them.

    Raises:
        UserError: a mechanism of the user's own can't be made.
    """
    match config.attention:
        case SoftmaxConfig(scaled=scaled):
            return Softmax(scaled=scaled, dropout=config.dropout)
        case ArgmaxConfig(scaled=scaled):
            return Argmax(scaled=scaled)
        case LinformerConfig(k=k, shared=shared):
            heads = None if shared else config.kv_heads
            return Linformer(length=config.block, k=min(k, config.block), heads=heads)
        case BigBirdConfig(seed=seed) as big_bird:
            options = msgspec.structs.asdict(big_bird) | {"seed": layer_seed(seed, layer)}
            return BigBird(max_keys=config.block, **options)
        case SlidingWindowConfig(size=size, block=block):
            return SlidingWindow(size=size, block=block)
        case EluConfig():
            return KernelAttention(Elu())
        case PolynomialConfig(degree=degree):
            return KernelAttention(Polynomial(degree=degree))
        case OtherConfig(mechanism=name, options=options):
            return _other(name, options)
        case RandomFeaturesConfig() as random:
            draw, seed = _RANDOM_FEATURES[type(random)], layer_seed(torch.initial_seed(), layer)
            options = msgspec.structs.asdict(random)
            return KernelAttention(draw(d=config.d_head, seed=seed, **options))


def layer_seed(seed: int, layer: int) -> int:
    """A seed for a layer's draws."""
    return int(np.random.SeedSequence([seed, layer]).generate_state(1)[0])


_RANDOM_FEATURES: dict[type[RandomFeaturesConfig], type[RandomFeatures]] = {
    FourierConfig: Fourier,
    FavorPositiveConfig: FavorPositive,
    FavorTrigonometricConfig: FavorTrigonometric,
    FavorHyperbolicConfig: FavorHyperbolic,
}


def _other(name: str, options: dict[str, object]) -> Attention:
    if name in OWN:
        raise UserError(f"model.attention: {name} is Regard's own: set model.attention.kind={name}")
    try:
        return find_any(name).type(**options)
    except (TypeError, ValueError) as error:
        raise UserError(f"model.attention: {name} can't be made with {options}: {error}") from error
