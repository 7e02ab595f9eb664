"""GPT-2 (Radford et al., 2019)."""

from regard.huggingface.convert.family import TRANSPOSED, Family, Stored
from regard.huggingface.convert.fields import ACTIVATIONS, Constant, Dropout, Renamed, Required

GPT2 = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    fields=(
        Required("add_cross_attention", False),
        Required("pruned_heads", {}),
        Renamed("n_positions", "context_length"),
        Renamed("n_layer", "n_layers"),
        Renamed("n_head", "n_heads"),
        Renamed("n_embd", "d_model"),
        Renamed("n_inner", "d_ff", default=None),
        Renamed("activation_function", "activation", default="gelu_new", values=ACTIVATIONS),
        Renamed("layer_norm_epsilon", "norm_eps", default=1e-5),
        Renamed("scale_attn_weights", "attention.scaled", default=True),
        Renamed("scale_attn_by_inverse_layer_idx", "attention.scale_by_layer", default=False),
        Renamed("tie_word_embeddings", "tie_head", default=True),
        Dropout(("resid_pdrop", "embd_pdrop"), "attn_pdrop", 0.1),
        Constant("attention.kind", "softmax"),
        Constant("positions.kind", "learned"),
        Constant("norm", "pre"),
    ),
    other_names={
        "max_position_embeddings": "n_positions",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "hidden_size": "n_embd",
    },
    tensors={
        "body.embedding": "transformer.wte",
        "body.absolute.vectors": "transformer.wpe.weight",
        "body.layers.*.norm_attention": "transformer.h.*.ln_1",
        # Conv1D of transformers is a linear layer with transposed weights.
        "body.layers.*.self_attention.qkv_proj": Stored(
            ("transformer.h.*.attn.c_attn",), TRANSPOSED
        ),
        "body.layers.*.self_attention.o_proj": Stored(("transformer.h.*.attn.c_proj",), TRANSPOSED),
        "body.layers.*.norm_feed_forward": "transformer.h.*.ln_2",
        "body.layers.*.feed_forward.up_proj": Stored(("transformer.h.*.mlp.c_fc",), TRANSPOSED),
        "body.layers.*.feed_forward.down_proj": Stored(("transformer.h.*.mlp.c_proj",), TRANSPOSED),
        "body.norm": "transformer.ln_f",
        "head": "lm_head",
    },
    renamed=((r"^(?=(wte|wpe|h|ln_f)\.)", "transformer."),),
    unused=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",  # the causal mask
)
