"""BART (Lewis et al., 2020)."""

from typing import Any

from regard.huggingface.convert.family import Family, Layout, Stored
from regard.huggingface.convert.fields import (
    ACTIVATIONS,
    Constant,
    Dropout,
    Renamed,
    Required,
    both,
)
from regard.models.config import EncoderDecoderConfig


def _stack(stack: str) -> dict[str, str | tuple[str, ...]]:
    ours, theirs = f"body.{stack}.layers.*", f"model.{stack}.layers.*"
    return {
        f"body.{stack}.absolute.vectors": f"model.{stack}.embed_positions.weight",
        f"body.{stack}.norm": f"model.{stack}.layernorm_embedding",
        f"{ours}.self_attention.qkv_proj": tuple(f"{theirs}.self_attn.{x}_proj" for x in "qkv"),
        f"{ours}.self_attention.o_proj": f"{theirs}.self_attn.out_proj",
        f"{ours}.norm_attention": f"{theirs}.self_attn_layer_norm",
        f"{ours}.cross_attention.q_proj": f"{theirs}.encoder_attn.q_proj",
        f"{ours}.cross_attention.kv_proj": tuple(f"{theirs}.encoder_attn.{x}_proj" for x in "kv"),
        f"{ours}.cross_attention.o_proj": f"{theirs}.encoder_attn.out_proj",
        f"{ours}.norm_cross": f"{theirs}.encoder_attn_layer_norm",
        f"{ours}.feed_forward.up_proj": f"{theirs}.fc1",
        f"{ours}.feed_forward.down_proj": f"{theirs}.fc2",
        f"{ours}.norm_feed_forward": f"{theirs}.final_layer_norm",
    }


_CONSTANTS: dict[str, Any] = {
    "norm": "post",
    "norm_eps": 1e-5,
    "attention.kind": "softmax",
    "positions.kind": "learned",
    "positions.offset": 2,
}

BART = Family(
    model_type="bart",
    architecture="BartForConditionalGeneration",
    config=EncoderDecoderConfig,
    fields=(
        Required("add_final_layer_norm", False),
        Required("normalize_before", False),
        Required("normalize_embedding", True),
        Required("static_position_embeddings", False),
        Renamed("max_position_embeddings", *both("context_length")),
        Renamed("encoder_layers", "encoder.n_layers"),
        Renamed("decoder_layers", "decoder.n_layers"),
        Renamed("encoder_attention_heads", "encoder.n_heads"),
        Renamed("decoder_attention_heads", "decoder.n_heads"),
        Renamed("encoder_ffn_dim", "encoder.d_ff"),
        Renamed("decoder_ffn_dim", "decoder.d_ff"),
        Renamed("d_model", *both("d_model")),
        Renamed("activation_function", *both("activation"), default="gelu", values=ACTIVATIONS),
        Renamed("scale_embedding", *both("scale_embeddings"), default=False),
        Renamed("tie_word_embeddings", "tie_head", default=True),
        Dropout(("dropout",), "attention_dropout", 0.1, ("encoder.", "decoder."), 0.0),
        *(Constant(each, value) for name, value in _CONSTANTS.items() for each in both(name)),
        Constant("share_embeddings", True),
        Constant("head_bias", True),
    ),
    other_names={
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
        "hidden_size": "d_model",
    },
    tensors={
        "body.encoder.embedding": "model.shared",
        "body.decoder.embedding": "model.decoder.embed_tokens",
        **_stack("encoder"),
        **_stack("decoder"),
        "head.weight": "lm_head.weight",
        "head.bias": Stored(
            ("final_logits_bias",), Layout(lambda x, _: x.flatten(), lambda x, _: x[None])
        ),
    },
    renamed=((r"^(?=(shared|encoder|decoder)\.)", "model."),),
    aliases={"model.encoder.embed_tokens.weight": "model.shared.weight"},
    unused=r"model\.(encoder|decoder)\.version",
)
