"""Qwen3-Next (Qwen Team, 2025), without mixtures of experts.

Shapes of projections: rows by head, in groups of a key head with its value heads.
"""

from itertools import accumulate
from typing import Any

from regard.attention.recurrent_config import GatedDeltaNetConfig
from regard.errors import UserError
from regard.huggingface.convert.families.llama import (
    FREQUENCIES,
    NO_BIAS,
    NO_FF_BIAS,
    SIZES,
    TENSORS,
    HeadWidth,
    KeyValueHeads,
)
from regard.huggingface.convert.family import Family, Fused
from regard.huggingface.convert.fields import (
    WHERE,
    Constant,
    Renamed,
    Required,
    Rope,
    Values,
    layer_kinds,
    n_layers,
    refused,
)
from regard.models.config import DecoderConfig, TransformerConfig
from regard.models.pattern import expand, fold

_LINEAR, _FULL = "linear_attention", "full_attention"
_SIZES = {
    "linear_num_key_heads": ("n_kv_heads", 16),
    "linear_num_value_heads": ("n_value_heads", 32),
    "linear_key_head_dim": ("head_dim", 128),
    "linear_conv_kernel_dim": ("short_conv", 4),
}
"""Fields of linear-attention layers → options and defaults."""


class _Dense:
    """Check that no layer has experts."""

    def read(self, hf: Values) -> dict[str, Any]:
        experts, step = hf.get("num_experts", 512), hf.get("decoder_sparse_step", 1)
        dense = hf.get("mlp_only_layers") or ()
        for i in range(n_layers(hf)):
            if experts and i not in dense and not (i + 1) % step:
                raise UserError(
                    f"{WHERE}: num_experts = {experts}: layer {i} is a mixture of experts, which "
                    "can't be imported"
                )
        return {}

    def write(self, options: Values) -> dict[str, Any]:
        return {"num_experts": 0}


class _Layers:
    """Gated DeltaNet, with gated softmax attention in the last layer of each period."""

    def read(self, hf: Values) -> dict[str, Any]:
        period = hf.get("full_attention_interval") or 4
        usual = [_LINEAR if (i + 1) % period else _FULL for i in range(n_layers(hf))]
        kinds = layer_kinds(hf, usual, known=(_LINEAR, _FULL))
        if _FULL not in kinds:
            raise refused("layer_types", _LINEAR, f"{_FULL} in some layer")
        linear = {ours: hf.get(name, default) for name, (ours, default) in _SIZES.items()}
        key, value = linear["head_dim"], hf.get("linear_value_head_dim", 128)
        if value != key:
            raise refused("linear_value_head_dim", value, f"{key}, as keys have,")
        entry = {
            **linear,
            "n_heads": linear["n_kv_heads"],
            "attention": {
                "kind": "gated-deltanet",
                "output_gate": True,
                "gate_activation": "silu",
                "norm_eps": hf.get("rms_norm_eps", 1e-6),
                "qk_norm_eps": 1e-6,
            },
            "positions": {"kind": "none"},
            "qk_norm": False,
        }
        layers = [entry if kind == _LINEAR else {} for kind in kinds]
        return {"pattern": fold(layers) if any(layers) else []}

    def write(self, options: Values) -> dict[str, Any]:
        layers = expand(options["pattern"], options["n_layers"])
        kinds = [_LINEAR if "attention" in layer else _FULL for layer in layers]
        linear = next((layer for layer in layers if "attention" in layer), None)
        fields: dict[str, Any] = {name: default for name, (_, default) in _SIZES.items()}
        if linear is not None:
            heads = options["n_kv_heads"] or options["n_heads"]
            width = options["head_dim"] or options["d_model"] // options["n_heads"]
            shared = {**options, "n_kv_heads": heads, "n_value_heads": heads, "head_dim": width}
            sizes = shared | linear
            fields = {name: sizes[ours] for name, (ours, _) in _SIZES.items()}
        fields["linear_value_head_dim"] = fields["linear_key_head_dim"]
        return {"layer_types": kinds, **fields}


def _tensors(config: DecoderConfig) -> dict[str, tuple[str, ...]]:
    """Return the tensors of attention, layer by layer."""
    found: dict[str, tuple[str, ...]] = {}
    for i, layer in enumerate(config.layers):
        ours, theirs = f"body.layers.{i}.self_attention", f"model.layers.{i}"
        if _is_linear(layer):
            theirs += ".linear_attn"
            qkvz, ba = f"{theirs}.in_proj_qkvz.weight", f"{theirs}.in_proj_ba.weight"
            own: dict[str, tuple[str, ...]] = {
                "qkv_proj.weight": (f"{qkvz}[qkv]",),
                "short_conv.weight": (f"{theirs}.conv1d.weight",),
                "gating.proj.weight": (f"{ba}[a]", f"{ba}[b]"),
                "gating.steps.log_a": (f"{theirs}.A_log",),
                "gating.steps.bias": (f"{theirs}.dt_bias",),
                "gating.out_norm.weight": (f"{theirs}.norm.weight",),
                "gating.out_gate.weight": (f"{qkvz}[z]",),
                "o_proj.weight": (f"{theirs}.out_proj.weight",),
            }
        else:
            q, k, v = (f"{theirs}.self_attn.{x}_proj.weight" for x in "qkv")
            own = {"qkv_proj.weight": (f"{q}[query]", k, v), "gating.proj.weight": (f"{q}[gate]",)}
        found |= {f"{ours}.{name}": names for name, names in own.items()}
    return found


def _fused(config: DecoderConfig) -> Fused:
    """Return the rows of each part of fused projections."""
    found: dict[str, dict[str, list[int]]] = {}
    for i, layer in enumerate(config.layers):
        d, heads = layer.d_head, layer.kv_heads
        if not _is_linear(layer):
            query, gate = _rows(layer.n_heads, d, d)
            found[f"model.layers.{i}.self_attn.q_proj.weight"] = {"query": query, "gate": gate}
            continue
        group = layer.value_heads // heads
        query, key, value, z = _rows(heads, d, d, group * d, group * d)
        b, a = _rows(heads, group, group)
        theirs = f"model.layers.{i}.linear_attn"
        found[f"{theirs}.in_proj_qkvz.weight"] = {"qkv": query + key + value, "z": z}
        found[f"{theirs}.in_proj_ba.weight"] = {"a": a, "b": b}
    return found


def _rows(heads: int, *sizes: int) -> list[list[int]]:
    """Return the rows of each part over all heads, where parts are contiguous within a head."""
    found, width = [], sum(sizes)
    for start, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        found.append([h * width + start + i for h in range(heads) for i in range(size)])
    return found


def _is_linear(layer: TransformerConfig) -> bool:
    return isinstance(layer.attention, GatedDeltaNetConfig)


QWEN3_NEXT = Family(
    model_type="qwen3_next",
    architecture="Qwen3NextForCausalLM",
    fields=(
        _Dense(),
        Required("attention_bias", False),
        *SIZES,
        KeyValueHeads(default=2),
        HeadWidth(default=256),
        *NO_BIAS,
        NO_FF_BIAS,
        Renamed("hidden_act", "activation", default="silu", values={"silu": "silu"}),
        Renamed("tie_word_embeddings", "tie_head", default=False),
        Constant("attention.kind", "gated-softmax"),
        Constant("norm_type", "zero-centered-rms-norm"),
        Constant("qk_norm", True),
        Rope(partial=0.25),
        _Layers(),
    ),
    tensors=TENSORS,
    variants=_tensors,
    fused=_fused,
    unused=FREQUENCIES,
    amend=lambda hf, _: {"head_dim": 256, **hf},
)
