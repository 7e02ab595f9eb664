"""From configuration to position encoding."""

from regard.attention import Bias, RelativeVectors
from regard.models.config import (
    AlibiConfig,
    LearnedConfig,
    OneHotConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ShawVectorsConfig,
    SinusoidalConfig,
    T5BiasConfig,
    TransformerConfig,
)
from regard.positions import (
    Alibi,
    Learned,
    OneHot,
    RelativeBias,
    Rotary,
    ShawVectors,
    Sinusoidal,
    T5Bias,
)


def make_absolute(config: TransformerConfig) -> Learned | Sinusoidal | OneHot | None:
    """Vectors to add to the embeddings, or to concatenate with them."""
    d = config.d_positions or config.d_model
    match config.positions:
        case LearnedConfig():
            return Learned(length=config.context_length, d=d)
        case SinusoidalConfig(base=base):
            return Sinusoidal(length=config.context_length, d=d, base=base)
        case OneHotConfig():
            return OneHot(length=config.context_length, d=d)
    return None


def make_rotary(config: TransformerConfig) -> Rotary | None:
    """What turns queries and keys."""
    if isinstance(config.positions, RotaryConfig):
        return Rotary(length=config.context_length, d=config.d_head, base=config.positions.base)
    return None


def make_bias(config: TransformerConfig) -> Bias | RelativeVectors | None:
    """What is added to the scores, or to keys and values: one for all layers."""
    match config.positions:
        case RelativeBiasConfig(clip=None):
            return RelativeBias(heads=config.n_heads, length=config.context_length)
        case RelativeBiasConfig(clip=clip):
            return RelativeBias(heads=config.n_heads, clip=clip)
        case ShawVectorsConfig(clip=clip):
            return ShawVectors(d=config.d_head, clip=clip)
        case T5BiasConfig(buckets=buckets, max_distance=farthest):
            return T5Bias(heads=config.n_heads, buckets=buckets, max_distance=farthest)
        case AlibiConfig():
            return Alibi(heads=config.n_heads)
    return None
