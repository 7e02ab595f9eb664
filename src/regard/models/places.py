"""Features that each place in a model requires of an attention mechanism. Imports no torch."""

from collections.abc import Sequence

from regard.errors import UnsupportedError
from regard.models.config import (
    CROSS,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    ModelConfig,
    PerceiverConfig,
    RecurrentEncoderDecoderConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.pattern import period
from regard.positions.config import (
    AlibiConfig,
    RelativeBiasConfig,
    RotaryConfig,
    ShawVectorsConfig,
    T5BiasConfig,
)

DECODER = ("alignment", "decoding")
ENCODER = ("bidirectional", "key_lengths")
PERCEIVER = ("alignment", "decoding", "cross", "allowed")
"""Features of each place, in the order in which they are checked."""


def require_places(config: ModelConfig) -> None:
    """Raise unless each mechanism of a model has the features that its place requires.

    Raises:
        UnsupportedError: names the mechanism and the feature.
    """
    match config:
        case DecoderConfig():
            require_layers(config, DECODER)
        case PerceiverConfig():
            require_layers(config, PERCEIVER)
        case EncoderConfig():
            require_layers(config, ENCODER)
        case EncoderDecoderConfig(encoder=encoder, decoder=decoder):
            require_layers(encoder, ENCODER, "encoder layer")
            require_layers(decoder, DECODER, "decoder layer")
            if decoder.cross_attention is not None:
                decoder.cross_attention.require_support(*CROSS)
        case RecurrentEncoderDecoderConfig(attention=attention) if attention is not None:
            attention.require_support(*CROSS)


def require_layers(
    config: TransformerConfig, features: Sequence[str], called: str = "layer"
) -> None:
    """Raise unless the mechanism of each layer supports `features` and those of its options.

    Raises:
        UnsupportedError: names the mechanism and the feature, and the layer of a pattern.
    """
    n_kinds = period(config.pattern) if config.pattern else 1
    layers = [config.layer(i) for i in range(n_kinds)]
    residual = any(layer.value_residual for layer in layers)
    for i, layer in enumerate(layers):
        shares_values = layer.value_residual or (residual and i == 0)
        try:
            layer.attention.require_support(*features, *_needed(layer, shares_values))
            _require_queries(layer)
        except UnsupportedError as error:
            place = f"{called} {i}: " if config.pattern else ""
            raise UnsupportedError(f"{place}{error}") from None
    if config.attention_dropout:
        _require_dropout(layers)


def _require_dropout(layers: Sequence[TransformerConfig]) -> None:
    """Raise unless a mechanism of the layers, or of their cross-attention, drops weights."""
    cross = [layer.cross for layer in layers if isinstance(layer, TargetConfig)]
    if not any(one.supported.dropout for one in (*(x.attention for x in layers), *cross)):
        layers[0].attention.require_support("dropout")


def _require_queries(layer: TransformerConfig) -> None:
    """Raise if positions rotate queries, and the mechanism has none."""
    if isinstance(layer.positions, RotaryConfig) and not layer.attention.queries_per_head:
        raise UnsupportedError(
            f"{layer.attention.called} attention has no queries that rotary positions rotate; set "
            "model.positions.kind=learned"
        )


def _needed(layer: TransformerConfig, shares_values: bool) -> list[str]:
    """Return the features that the options of a layer require."""
    biases = RelativeBiasConfig | T5BiasConfig | AlibiConfig
    needed = {
        "bias": isinstance(layer.positions, biases),
        "vectors": isinstance(layer.positions, ShawVectorsConfig),
        "window_size": layer.window > 0,
        "value_heads": layer.value_heads != layer.kv_heads,
        "kv_heads": layer.kv_heads != layer.n_heads,
        "qk_norm": layer.qk_norm,
        "short_conv": layer.convolves_qkv,
        "added_values": layer.value_embedding or shares_values,
    }
    return [feature for feature, is_needed in needed.items() if is_needed]
