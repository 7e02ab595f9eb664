"""Every mechanism with options that fit tiny models, and options of other parts of layers."""

from typing import Any

from regard.attention.config import BUILT_IN, AttentionConfig, SoftmaxConfig, config_type
from regard.models.ngram_config import NgramConfig

OPTIONS: dict[str, dict[str, Any]] = {
    "softmax-one": {"learned": True},
    "latent": {"d_latent": 6, "d_rope": 2},
    "top-k": {"k": 3},
    "moba": {"block_size": 2, "blocks": 3},
    "linformer": {"k": 3, "shared": False},
    "bigbird": {"block_size": 2},
    "sliding-window": {"size": 3, "block_size": 2},
    "fourier": {"features": 512, "sigma": 20.0},
    "favor-trigonometric": {"features": 4096},
}


def configured(kind: str, **options: Any) -> AttentionConfig:
    """The configuration of a mechanism, by its name or file."""
    config = config_type(kind)(**options)
    assert isinstance(config, AttentionConfig)
    return config


ATTENTIONS = {kind: configured(kind, **OPTIONS.get(kind, {})) for kind in BUILT_IN}
STACKS: list[dict[str, Any]] = [
    {
        "norm": "sandwich",
        "norm_type": "zero-centered-rms-norm",
        "attention": SoftmaxConfig(softcap=2.0),
        "logit_softcap": 3.0,
    },
    {"norm": "post", "short_conv": 3, "n_kv_heads": 2},
    {"canon": "ABCD", "gated": True},
    {"ngrams": NgramConfig(slots=50), "value_embedding": True, "value_residual": True},
]
"""Options of tiny models that change parts around attention."""
