"""GPT-NeoX (Black et al., 2022), the architecture of Pythia."""

from torch import Tensor

from regard.huggingface.convert.family import Family, Layout, Stored
from regard.huggingface.convert.fields import ACTIVATIONS, Constant, Dropout, Renamed, Rope
from regard.models.config import DecoderConfig


def _load_heads(x: Tensor, config: DecoderConfig) -> Tensor:
    """[heads, 3, width] → queries, keys and values of all heads."""
    heads: Tensor = x.unflatten(0, (config.n_heads, 3, -1))
    return heads.transpose(0, 1).flatten(0, 2)


def _save_heads(x: Tensor, config: DecoderConfig) -> Tensor:
    parts: Tensor = x.unflatten(0, (3, config.n_heads, -1))
    return parts.transpose(0, 1).flatten(0, 2)


GPT_NEOX = Family(
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    fields=(
        Renamed("max_position_embeddings", "context_length"),
        Renamed("num_hidden_layers", "n_layers"),
        Renamed("num_attention_heads", "n_heads"),
        Renamed("hidden_size", "d_model"),
        Renamed("intermediate_size", "d_ff"),
        Renamed("hidden_act", "activation", default="gelu", values=ACTIVATIONS),
        Renamed("layer_norm_eps", "norm_eps", default=1e-5),
        Renamed("use_parallel_residual", "parallel_residual", default=True),
        Renamed("tie_word_embeddings", "tie_head", default=False),
        Dropout(("hidden_dropout",), "attention_dropout", 0.0),
        Constant("attention.kind", "softmax"),
        Renamed("attention_bias", "qkv_bias", "o_bias", default=True),
        Rope(partial=0.25, older_base="rotary_emb_base", older_share="rotary_pct"),
    ),
    tensors={
        "body.embedding": "gpt_neox.embed_in",
        "body.layers.*.norm_attention": "gpt_neox.layers.*.input_layernorm",
        "body.layers.*.self_attention.qkv_proj": Stored(
            ("gpt_neox.layers.*.attention.query_key_value",), Layout(_load_heads, _save_heads)
        ),
        "body.layers.*.self_attention.o_proj": "gpt_neox.layers.*.attention.dense",
        "body.layers.*.norm_feed_forward": "gpt_neox.layers.*.post_attention_layernorm",
        "body.layers.*.feed_forward.up_proj": "gpt_neox.layers.*.mlp.dense_h_to_4h",
        "body.layers.*.feed_forward.down_proj": "gpt_neox.layers.*.mlp.dense_4h_to_h",
        "body.norm": "gpt_neox.final_layer_norm",
        "head": "embed_out",
    },
    renamed=((r"^lm_head\.", "embed_out."),),
    # The causal mask, and frequencies of rotary positions.
    unused=r"gpt_neox\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",
)
