"""Gemma, Gemma 2 and Gemma 3 (Gemma Team, 2024, arXiv:2403.08295, 2408.00118; 2025, 2503.19786)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.huggingface.convert.families.llama import (
    BIAS,
    FREQUENCIES,
    NO_FF_BIAS,
    SIZES,
    TENSORS,
    HeadWidth,
    KeyValueHeads,
)
from regard.huggingface.convert.family import Family
from regard.huggingface.convert.fields import (
    ACTIVATIONS,
    Constant,
    Entry,
    Renamed,
    Required,
    Rope,
    Values,
    flat,
    layer_kinds,
    n_layers,
    nested,
    refused,
)
from regard.models.pattern import expand, fold

_LOCAL, _GLOBAL = "sliding_attention", "full_attention"
_BASES = {_LOCAL: 10_000.0, _GLOBAL: 1_000_000.0}
"""Bases of rotary positions in Gemma 3, if config.json has none."""
_WINDOW = 4096


class _ScoreScale:
    """Scale of the scores, 1 / √query_pre_attn_scalar."""

    def read(self, hf: Values) -> dict[str, Any]:
        scalar, width = hf.get("query_pre_attn_scalar", 256), hf.get("head_dim", 256)
        return {"attention.scale_dim": None if scalar == width else scalar}

    def write(self, options: Values) -> dict[str, Any]:
        width = options["head_dim"] or options["d_model"] // options["n_heads"]
        return {"query_pre_attn_scalar": options.get("attention.scale_dim") or width}


@dataclass(frozen=True)
class _Layers:
    """Windows in all layers but the last of each period, in Gemma 3 with separate positions."""

    period: int
    """Default period, if the file lists no layer types."""
    own_positions: bool
    """Whether layers with and without a window have different rotary positions."""

    def read(self, hf: Values) -> dict[str, Any]:
        given = hf.get("sliding_window_pattern") if self.own_positions else None  # not in Gemma 2
        period = given or self.period
        usual = [_LOCAL if (i + 1) % period else _GLOBAL for i in range(n_layers(hf))]
        kinds = layer_kinds(hf, usual, known=(_LOCAL, _GLOBAL))
        window, ropes = hf.get("sliding_window", _WINDOW) or 0, self._positions(hf)
        if _GLOBAL not in kinds:
            return {"window": window, **ropes[_LOCAL]}
        local: dict[str, Any] = {"window": window} if window else {}
        if ropes[_LOCAL] != ropes[_GLOBAL]:
            local["positions"] = nested(ropes[_LOCAL])["positions"]
        layers = [local if kind == _LOCAL else {} for kind in kinds]
        return {**ropes[_GLOBAL], "pattern": fold(layers) if any(layers) else []}

    def _positions(self, hf: Values) -> dict[str, dict[str, Any]]:
        """Return the options of positions for each kind of layer, and a given context length."""
        if not self.own_positions:
            return dict.fromkeys(_BASES, Rope().read(hf))
        older = {_GLOBAL: "rope_theta", _LOCAL: "rope_local_base_freq"}
        given, scaling = hf.get("rope_parameters") or {}, hf.get("rope_scaling") or {}
        # transformers 5 ignores an older name of the type, and with it the scaling.
        if "rope_type" not in scaling and scaling.get("type", "default") != "default":
            raise refused("rope_scaling", scaling, "rope_type instead of type in it")
        each = {
            kind: {"rope_theta": hf.get(older[kind], base)} | (given.get(kind) or {})
            for kind, base in _BASES.items()
        }
        each[_GLOBAL] |= scaling
        unused = ("rope_scaling", "original_max_position_embeddings")
        bare = {name: value for name, value in hf.items() if name not in unused}
        return {kind: Rope().read({**bare, "rope_parameters": rope}) for kind, rope in each.items()}

    def write(self, options: Values) -> dict[str, Any]:
        plain = {"window": options["window"], "positions": nested(options)["positions"]}
        layers = [plain | one for one in expand(options["pattern"], options["n_layers"])]
        kinds = [_LOCAL if layer["window"] else _GLOBAL for layer in layers]
        fields = {
            "layer_types": kinds,
            "sliding_window": max(layer["window"] for layer in layers) or _WINDOW,
        }
        ropes = {
            kind: Rope().write({**options, **flat({"positions": layer["positions"]})})
            for kind, layer in zip(reversed(kinds), reversed(layers), strict=True)
        }
        if not self.own_positions:
            return fields | ropes[kinds[0]]
        whole = ropes.get(_GLOBAL, ropes[kinds[0]])
        local = ropes.get(_LOCAL, {"rope_parameters": {"rope_theta": _BASES[_LOCAL]}})
        each = {_GLOBAL: whole["rope_parameters"], _LOCAL: local["rope_parameters"]}
        older = {"rope_local_base_freq": each[_LOCAL]["rope_theta"]}  # of transformers 4
        return fields | whole | older | {"rope_parameters": each}


_SHARED: tuple[Entry, ...] = (
    Required("use_bidirectional_attention", False),
    *SIZES,
    HeadWidth(default=256),
    BIAS,
    NO_FF_BIAS,
    Renamed("tie_word_embeddings", "tie_head", default=True),
    Constant("attention.kind", "softmax"),
    Constant("norm_type", "zero-centered-rms-norm"),
    Constant("scale_embeddings", True),
)
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu-tanh", **ACTIVATIONS}
_LATER: tuple[Entry, ...] = (
    *_SHARED,
    KeyValueHeads(default=4),
    Renamed("hidden_activation", "activation", default="gelu_pytorch_tanh", values=_ACTIVATIONS),
    Constant("norm", "sandwich"),
    _ScoreScale(),
)
_NORMS = {
    "body.layers.*.norm_attention_out": "model.layers.*.post_attention_layernorm",
    "body.layers.*.norm_feed_forward": "model.layers.*.pre_feedforward_layernorm",
    "body.layers.*.norm_feed_forward_out": "model.layers.*.post_feedforward_layernorm",
}


def _family(
    model_type: str, architecture: str, fields: tuple[Entry, ...], tensors: Mapping[str, str]
) -> Family:
    return Family(
        model_type=model_type,
        architecture=architecture,
        fields=fields,
        tensors={**TENSORS, **tensors},
        unused=FREQUENCIES,
    )


GEMMA = _family(
    "gemma",
    "GemmaForCausalLM",
    (
        *_SHARED,
        KeyValueHeads(default=16),
        # Older files say "gelu", but mean the approximation, too.
        Renamed(
            "hidden_act",
            "activation",
            default="gelu_pytorch_tanh",
            values={**_ACTIVATIONS, "gelu": "gelu-tanh"},
        ),
        Rope(),
    ),
    {},
)
GEMMA2 = _family(
    "gemma2",
    "Gemma2ForCausalLM",
    (
        *_LATER,
        Renamed("attn_logit_softcapping", "attention.softcap", default=50.0),
        Renamed("final_logit_softcapping", "logit_softcap", default=30.0),
        _Layers(period=2, own_positions=False),
    ),
    _NORMS,
)
GEMMA3 = _family(
    "gemma3_text",
    "Gemma3ForCausalLM",
    (
        *_LATER,
        Constant("qk_norm", True),
        Required("attn_logit_softcapping", None),
        Renamed("final_logit_softcapping", "logit_softcap", default=None),
        _Layers(period=6, own_positions=True),
    ),
    _NORMS,
)
