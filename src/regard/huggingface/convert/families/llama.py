"""Llama (Touvron et al., 2023), Mistral (Jiang et al., 2023), Qwen2 and Qwen3 (Yang et al.)."""

from dataclasses import dataclass
from typing import Any

from regard.huggingface.convert.family import Family
from regard.huggingface.convert.fields import (
    ACTIVATIONS,
    Constant,
    Dropout,
    Entry,
    Renamed,
    Rope,
    Values,
    layer_kinds,
    n_layers,
)
from regard.models.pattern import expand, fold


class _Window:
    """Mistral's window, the same in all layers; it includes the query, as `window` does."""

    def read(self, hf: Values) -> dict[str, Any]:
        return {"window": hf.get("sliding_window", 4096) or 0}

    def write(self, options: Values) -> dict[str, Any]:
        return {"sliding_window": options["window"] or None}


class _WindowOfLayers:
    """Qwen's window, in some of the layers."""

    def read(self, hf: Values) -> dict[str, Any]:
        window = hf.get("sliding_window", 4096) if hf.get("use_sliding_window") else None
        full = hf.get("max_window_layers", 28)
        numbers = range(n_layers(hf))
        usual = ["full_attention" if i < full else "sliding_attention" for i in numbers]
        kinds = layer_kinds(hf, usual, known=("full_attention", "sliding_attention"))
        windows = [(window or 0) if kind == "sliding_attention" else 0 for kind in kinds]
        if len(set(windows)) == 1:
            return {"window": windows[0]}
        return {"pattern": fold([{"window": size} if size else {} for size in windows])}

    def write(self, options: Values) -> dict[str, Any]:
        layers = expand(options["pattern"], options["n_layers"])
        windows: list[Any] = [layer.get("window", options["window"]) for layer in layers]
        kinds = ["sliding_attention" if window else "full_attention" for window in windows]
        return {
            "use_sliding_window": any(windows),
            "sliding_window": max(windows) or None,
            "max_window_layers": kinds.count("full_attention"),  # for transformers 4
            "layer_types": kinds,
        }


@dataclass(frozen=True)
class KeyValueHeads:
    """Number of key/value heads; null: the number of all heads."""

    default: int | None = None
    """Number if the field is absent."""

    def read(self, hf: Values) -> dict[str, Any]:
        heads = hf.get("num_key_value_heads", self.default)
        return {"n_kv_heads": None if heads == hf["num_attention_heads"] else heads}

    def write(self, options: Values) -> dict[str, Any]:
        return {"num_key_value_heads": options["n_kv_heads"] or options["n_heads"]}


@dataclass(frozen=True)
class HeadWidth:
    """Width of a head; null: hidden_size / num_attention_heads."""

    default: int | None = None
    """Width if the field is absent."""

    def read(self, hf: Values) -> dict[str, Any]:
        width, heads = hf.get("head_dim", self.default), hf["num_attention_heads"]
        return {"head_dim": None if width == hf["hidden_size"] / heads else width}

    def write(self, options: Values) -> dict[str, Any]:
        return {"head_dim": options["head_dim"] or options["d_model"] // options["n_heads"]}


SIZES: tuple[Entry, ...] = (
    Renamed("max_position_embeddings", "context_length"),
    Renamed("num_hidden_layers", "n_layers"),
    Renamed("num_attention_heads", "n_heads"),
    Renamed("hidden_size", "d_model"),
    Renamed("intermediate_size", "d_ff"),
    Renamed("rms_norm_eps", "norm_eps", default=1e-6),
    Dropout((), "attention_dropout", 0.0),
    Constant("gated", True),
    KeyValueHeads(),
)
"""Fields of all decoders with RMS norms and gated feed-forward layers."""

TENSORS: dict[str, str | tuple[str, ...]] = {
    "body.embedding": "model.embed_tokens",
    "body.layers.*.norm_attention": "model.layers.*.input_layernorm",
    "body.layers.*.self_attention.qkv_proj": tuple(
        f"model.layers.*.self_attn.{x}_proj" for x in "qkv"
    ),
    "body.layers.*.self_attention.q_norm": "model.layers.*.self_attn.q_norm",
    "body.layers.*.self_attention.k_norm": "model.layers.*.self_attn.k_norm",
    "body.layers.*.self_attention.o_proj": "model.layers.*.self_attn.o_proj",
    "body.layers.*.norm_feed_forward": "model.layers.*.post_attention_layernorm",
    "body.layers.*.feed_forward.gate_proj": "model.layers.*.mlp.gate_proj",
    "body.layers.*.feed_forward.up_proj": "model.layers.*.mlp.up_proj",
    "body.layers.*.feed_forward.down_proj": "model.layers.*.mlp.down_proj",
    "body.norm": "model.norm",
    "head": "lm_head",
}
FREQUENCIES = r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"
"""Pattern of frequency tensors in older files."""


def _family(model_type: str, architecture: str, *own: Entry) -> Family:
    return Family(
        model_type=model_type,
        architecture=architecture,
        fields=(
            *SIZES,
            Renamed("hidden_act", "activation", default="silu", values=ACTIVATIONS),
            Renamed("tie_word_embeddings", "tie_head", default=False),
            Constant("attention.kind", "softmax"),
            Constant("norm_type", "rms-norm"),
            Rope(),
            *own,
        ),
        tensors=TENSORS,
        unused=FREQUENCIES,
    )


BIAS = Renamed("attention_bias", "qkv_bias", "o_bias", default=False)
NO_BIAS = (Constant("qkv_bias", False), Constant("o_bias", False))
NO_FF_BIAS = Constant("ff_bias", False)

LLAMA = _family(
    "llama",
    "LlamaForCausalLM",
    HeadWidth(),
    BIAS,
    Renamed("mlp_bias", "ff_bias", default=False),
)
MISTRAL = _family(
    "mistral",
    "MistralForCausalLM",
    KeyValueHeads(default=8),
    HeadWidth(),
    _Window(),
    *NO_BIAS,
    NO_FF_BIAS,
)
QWEN2 = _family(
    "qwen2",
    "Qwen2ForCausalLM",
    KeyValueHeads(default=32),
    HeadWidth(),
    _WindowOfLayers(),
    Constant("qkv_bias", True),
    Constant("o_bias", False),
    NO_FF_BIAS,
)
QWEN3 = _family(
    "qwen3",
    "Qwen3ForCausalLM",
    KeyValueHeads(default=32),
    HeadWidth(default=128),
    BIAS,
    _WindowOfLayers(),
    Constant("qk_norm", True),
    NO_FF_BIAS,
)
