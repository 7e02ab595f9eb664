"""T5 and T5 v1.1 (Raffel et al., 2020; Shazeer, 2020)."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.huggingface.convert.family import TRANSPOSED, Family, Stored
from regard.huggingface.convert.fields import (
    Constant,
    Dropout,
    Renamed,
    Required,
    Values,
    both,
)
from regard.models.config import EncoderDecoderConfig


class _DecoderLayers:
    """Number of decoder layers; null: the number of encoder layers."""

    def read(self, hf: Values) -> dict[str, Any]:
        given = hf.get("num_decoder_layers")
        return {"decoder.n_layers": hf["num_layers"] if given is None else given}

    def write(self, options: Values) -> dict[str, Any]:
        return {"num_decoder_layers": options["decoder.n_layers"]}


_FEED_FORWARD = {
    "relu": ("relu", False),
    "gated-gelu": ("gelu-tanh", True),
    "gated-silu": ("silu", True),
    "gated-relu": ("relu", True),
    "silu": ("silu", False),
    "gelu": ("gelu", False),
    "gelu_new": ("gelu-tanh", False),
}


class _FeedForward:
    """Activation and gate, in one field; the two that transformers derives must agree with it."""

    def read(self, hf: Values) -> dict[str, Any]:
        kind = Renamed("feed_forward_proj", "", default="relu", values=_FEED_FORWARD).read(hf)[""]
        activation, gated = kind
        Required("dense_act_fn", "gelu_new" if activation == "gelu-tanh" else activation).read(hf)
        Required("is_gated_act", gated).read(hf)
        return dict.fromkeys(both("activation"), activation) | dict.fromkeys(both("gated"), gated)

    def write(self, options: Values) -> dict[str, Any]:
        chosen = (options["encoder.activation"], options["encoder.gated"])
        names = Renamed("feed_forward_proj", "encoder.activation", values=_FEED_FORWARD)
        return names.write({"encoder.activation": chosen})


def _amend(hf: Values, tensors: Mapping[str, Tensor]) -> Values:
    """Correct tie_word_embeddings by the tensors: T5 v1.1 files say tied but have a head."""
    tied, head = hf.get("tie_word_embeddings") is not False, tensors.get("lm_head.weight")
    embedding = tensors.get("shared.weight")
    own = head is not None and (embedding is None or not torch.equal(head, embedding))
    scaled = hf.get("scale_decoder_outputs", tied)
    return {**hf, "tie_word_embeddings": not own, "scale_decoder_outputs": scaled}


def _stack(ours: str, theirs: str, feed_forward: int) -> dict[str, str | tuple[str, ...] | Stored]:
    block = f"{theirs}.block.*.layer"
    dense = f"{block}.{feed_forward}.DenseReluDense"
    return {
        f"{ours}.bias.values": Stored(
            (f"{theirs}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",), TRANSPOSED
        ),
        f"{ours}.layers.*.norm_attention": f"{block}.0.layer_norm",
        f"{ours}.layers.*.self_attention.qkv_proj": tuple(
            f"{block}.0.SelfAttention.{x}" for x in "qkv"
        ),
        f"{ours}.layers.*.self_attention.o_proj": f"{block}.0.SelfAttention.o",
        f"{ours}.layers.*.norm_feed_forward": f"{block}.{feed_forward}.layer_norm",
        f"{ours}.layers.*.feed_forward.down_proj": f"{dense}.wo",
        f"{ours}.norm": f"{theirs}.final_layer_norm",
    }


def _first_layers(config: EncoderDecoderConfig) -> dict[str, str]:
    """Return the names of up projection and gate: `wi` alone, or `wi_1` and `wi_0`."""
    found = {}
    for stack, number in (("encoder", 1), ("decoder", 2)):
        ours = f"body.{stack}.layers.*.feed_forward"
        theirs = f"{stack}.block.*.layer.{number}.DenseReluDense"
        found[f"{ours}.up_proj"] = f"{theirs}.wi_1" if config.encoder.gated else f"{theirs}.wi"
        found[f"{ours}.gate_proj"] = f"{theirs}.wi_0"
    return found


_CONSTANTS = {
    "qkv_bias": False,
    "o_bias": False,
    "ff_bias": False,
    "norm_type": "rms-norm",
    "attention.kind": "softmax",
    "attention.scaled": False,
    "positions.kind": "t5-bias",
}

T5 = Family(
    model_type="t5",
    architecture="T5ForConditionalGeneration",
    config=EncoderDecoderConfig,
    fields=(
        Renamed("n_positions", *both("context_length"), default=512),
        Renamed("num_layers", "encoder.n_layers"),
        _DecoderLayers(),
        Renamed("num_heads", *both("n_heads")),
        Renamed("d_kv", *both("head_dim")),
        Renamed("d_model", *both("d_model")),
        Renamed("d_ff", *both("d_ff")),
        _FeedForward(),
        Renamed("layer_norm_epsilon", *both("norm_eps"), default=1e-6),
        Renamed("relative_attention_num_buckets", *both("positions.buckets"), default=32),
        Renamed("relative_attention_max_distance", *both("positions.max_distance"), default=128),
        Renamed("tie_word_embeddings", "tie_head", default=True),
        Renamed("scale_decoder_outputs", "scale_head", default=True),
        Dropout(("dropout_rate",), "dropout_rate", 0.1, ("encoder.", "decoder.")),
        *(Constant(each, value) for name, value in _CONSTANTS.items() for each in both(name)),
        Constant("encoder.positions.bidirectional", True),
        Constant("share_embeddings", True),
    ),
    other_names={
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "head_dim": "d_kv",
        "hidden_size": "d_model",
    },
    tensors={
        "body.encoder.embedding": "shared",
        "body.decoder.embedding": "decoder.embed_tokens",
        **_stack("body.encoder", "encoder", 1),
        **_stack("body.decoder", "decoder", 2),
        "body.decoder.layers.*.norm_cross": "decoder.block.*.layer.1.layer_norm",
        "body.decoder.layers.*.cross_attention.q_proj": "decoder.block.*.layer.1.EncDecAttention.q",
        "body.decoder.layers.*.cross_attention.kv_proj": tuple(
            f"decoder.block.*.layer.1.EncDecAttention.{x}" for x in "kv"
        ),
        "body.decoder.layers.*.cross_attention.o_proj": "decoder.block.*.layer.1.EncDecAttention.o",
        "head": "lm_head",
    },
    variants=_first_layers,
    aliases={"encoder.embed_tokens.weight": "shared.weight"},
    unused=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    amend=_amend,
)
