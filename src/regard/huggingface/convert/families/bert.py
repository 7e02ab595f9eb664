"""BERT (Devlin et al., 2019), RoBERTa (Liu et al., 2019) and DistilBERT (Sanh et al., 2019)."""

from typing import Any

from regard.huggingface.convert.family import Family
from regard.huggingface.convert.fields import (
    ACTIVATIONS,
    Constant,
    Dropout,
    NoCounterpartError,
    Renamed,
    Required,
    Values,
)
from regard.models.config import EncoderConfig
from regard.models.head_config import MaskedLMHeadConfig

_GELU = {"gelu": "gelu"}
"""In transformers, the head has the activation of the layers; in Regard, it is always gelu."""


class _TokenTypes:
    """Number of token types; transformers adds the vector of one to each token."""

    def read(self, hf: Values) -> dict[str, Any]:
        return Renamed("type_vocab_size", "n_token_types", default=2).read(hf)

    def write(self, options: Values) -> dict[str, Any]:
        if not options["n_token_types"]:
            raise NoCounterpartError("n_token_types", 0, "these models have at least one")
        return {"type_vocab_size": options["n_token_types"]}


class _PositionsAfterPad:
    """RoBERTa's positions start after the id of the pad token; the table has rows for both."""

    def read(self, hf: Values) -> dict[str, Any]:
        offset = (hf.get("pad_token_id", 1) or 0) + 1
        rows = Renamed("max_position_embeddings", "rows").read(hf)["rows"]
        return {"positions.offset": offset, "context_length": rows - offset}

    def write(self, options: Values) -> dict[str, Any]:
        offset = options.get("positions.offset", 0)
        return {
            "pad_token_id": max(offset - 1, 0),
            "max_position_embeddings": options["context_length"] + offset,
        }


_SHARED = (
    Required("is_decoder", False),
    Required("add_cross_attention", False),
    Required("position_embedding_type", "absolute"),
    Required("pruned_heads", {}),
    Constant("attention.kind", "softmax"),
    Constant("positions.kind", "learned"),
    Constant("norm", "post"),
    Renamed("tie_word_embeddings", "tie_head", default=True),
)
_SIZES = (
    Renamed("num_hidden_layers", "n_layers"),
    Renamed("num_attention_heads", "n_heads"),
    Renamed("hidden_size", "d_model"),
    Renamed("intermediate_size", "d_ff"),
    Renamed("layer_norm_eps", "norm_eps", default=1e-12),
    _TokenTypes(),
    Dropout(("hidden_dropout_prob",), "attention_probs_dropout_prob", 0.1),
)


def _tensors(prefix: str) -> dict[str, str | tuple[str, ...]]:
    """Return the tensors of the body of BERT and RoBERTa."""
    layer = f"{prefix}.encoder.layer.*"
    return {
        "body.embedding": f"{prefix}.embeddings.word_embeddings",
        "body.absolute.vectors": f"{prefix}.embeddings.position_embeddings.weight",
        "body.token_type_embedding": f"{prefix}.embeddings.token_type_embeddings",
        "body.norm": f"{prefix}.embeddings.LayerNorm",
        "body.layers.*.self_attention.qkv_proj": tuple(
            f"{layer}.attention.self.{part}" for part in ("query", "key", "value")
        ),
        "body.layers.*.self_attention.o_proj": f"{layer}.attention.output.dense",
        "body.layers.*.norm_attention": f"{layer}.attention.output.LayerNorm",
        "body.layers.*.feed_forward.up_proj": f"{layer}.intermediate.dense",
        "body.layers.*.feed_forward.down_proj": f"{layer}.output.dense",
        "body.layers.*.norm_feed_forward": f"{layer}.output.LayerNorm",
    }


_OLD_NORMS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))

BERT = Family(
    model_type="bert",
    architecture="BertForMaskedLM",
    config=EncoderConfig,
    head=MaskedLMHeadConfig(),
    fields=(
        Renamed("max_position_embeddings", "context_length"),
        Renamed("hidden_act", "activation", default="gelu", values=_GELU),
        *_SIZES,
        *_SHARED,
    ),
    tensors={
        **_tensors("bert"),
        "head.layer": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head.scores": "cls.predictions.decoder",
    },
    renamed=((r"^(?=(embeddings|encoder|pooler)\.)", "bert."), *_OLD_NORMS),
    copies={"cls.predictions.bias": "cls.predictions.decoder.bias"},
    unused=r"bert\.embeddings\.position_ids|bert\.pooler\..*|cls\.seq_relationship\..*",
)

ROBERTA = Family(
    model_type="roberta",
    architecture="RobertaForMaskedLM",
    config=EncoderConfig,
    head=MaskedLMHeadConfig(),
    fields=(
        # The head's activation is gelu in transformers, too.
        Renamed("hidden_act", "activation", default="gelu", values=ACTIVATIONS),
        *_SIZES,
        *_SHARED,
        _PositionsAfterPad(),
    ),
    tensors={
        **_tensors("roberta"),
        "head.layer": "lm_head.dense",
        "head.norm": "lm_head.layer_norm",
        "head.scores": "lm_head.decoder",
    },
    renamed=((r"^(?=(embeddings|encoder|pooler)\.)", "roberta."), *_OLD_NORMS),
    copies={"lm_head.bias": "lm_head.decoder.bias"},
    unused=r"roberta\.embeddings\.position_ids|roberta\.pooler\..*",
)

DISTILBERT = Family(
    model_type="distilbert",
    architecture="DistilBertForMaskedLM",
    config=EncoderConfig,
    head=MaskedLMHeadConfig(),
    fields=(
        Renamed("max_position_embeddings", "context_length"),
        Renamed("n_layers", "n_layers"),
        Renamed("n_heads", "n_heads"),
        Renamed("dim", "d_model"),
        Renamed("hidden_dim", "d_ff"),
        Renamed("activation", "activation", default="gelu", values=_GELU),
        Dropout(("dropout",), "attention_dropout", 0.1),
        Constant("norm_eps", 1e-12),
        *_SHARED,
    ),
    other_names={
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "hidden_size": "dim",
    },
    tensors={
        "body.embedding": "distilbert.embeddings.word_embeddings",
        "body.absolute.vectors": "distilbert.embeddings.position_embeddings.weight",
        "body.norm": "distilbert.embeddings.LayerNorm",
        "body.layers.*.self_attention.qkv_proj": tuple(
            f"distilbert.transformer.layer.*.attention.{x}_lin" for x in "qkv"
        ),
        "body.layers.*.self_attention.o_proj": "distilbert.transformer.layer.*.attention.out_lin",
        "body.layers.*.norm_attention": "distilbert.transformer.layer.*.sa_layer_norm",
        "body.layers.*.feed_forward.up_proj": "distilbert.transformer.layer.*.ffn.lin1",
        "body.layers.*.feed_forward.down_proj": "distilbert.transformer.layer.*.ffn.lin2",
        "body.layers.*.norm_feed_forward": "distilbert.transformer.layer.*.output_layer_norm",
        "head.layer": "vocab_transform",
        "head.norm": "vocab_layer_norm",
        "head.scores": "vocab_projector",
    },
    renamed=((r"^(?=(embeddings|transformer)\.)", "distilbert."), *_OLD_NORMS),
    unused=r"distilbert\.embeddings\.position_ids",
)
