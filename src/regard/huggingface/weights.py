"""GPT-2 and BERT as Hugging Face saves them: what config.json says, and tensors by other names.

Names and defaults are those of `transformers` 5.23, `models/gpt2` and `models/bert`, and of the
files of openai-community/gpt2 and google-bert/bert-base-uncased, which are older.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from regard.config import convert
from regard.errors import UserError
from regard.models.builders import LanguageModel, MaskedLanguageModel
from regard.models.config import DecoderConfig, EncoderConfig

Names: TypeAlias = dict[str, list[str]]
"""For each tensor of ours, the tensors of theirs that it consists of, one below the other."""

_WHERE = "config.json"


# Configuration


def gpt2_config(hf: Mapping[str, Any]) -> DecoderConfig:
    """What the config.json of a GPT-2 describes.

    Raises:
        UserError: names the field that is missing, or can't be had here.
    """
    _require(
        hf,
        model_type="gpt2",
        add_cross_attention=False,
        scale_attn_by_inverse_layer_idx=False,
        pruned_heads={},
    )
    values = {
        "context_length": _given(hf, "n_positions"),
        "n_layers": _given(hf, "n_layer"),
        "n_heads": _given(hf, "n_head"),
        "d_model": _given(hf, "n_embd"),
        "d_ff": hf.get("n_inner"),
        "activation": _activation(hf, "activation_function", "gelu_new", _ACTIVATIONS),
        "norm": "pre",
        "norm_eps": hf.get("layer_norm_epsilon", 1e-5),
        "dropout": _dropout(hf, "resid_pdrop", "embd_pdrop", "attn_pdrop"),
        "attention": {"kind": "softmax", "scaled": hf.get("scale_attn_weights", True)},
        "positions": {"kind": "learned"},
        "tie_head": hf.get("tie_word_embeddings", True),
    }
    return convert(values, DecoderConfig, where=_WHERE)


def bert_config(hf: Mapping[str, Any]) -> EncoderConfig:
    """What the config.json of a BERT describes.

    Raises:
        UserError: names the field that is missing, or can't be had here.
    """
    _require(
        hf,
        model_type="bert",
        is_decoder=False,
        add_cross_attention=False,
        position_embedding_type="absolute",
        pruned_heads={},
    )
    values = {
        "context_length": _given(hf, "max_position_embeddings"),
        "n_layers": _given(hf, "num_hidden_layers"),
        "n_heads": _given(hf, "num_attention_heads"),
        "d_model": _given(hf, "hidden_size"),
        "d_ff": _given(hf, "intermediate_size"),
        # The head's activation is that of the layers there, and always gelu here.
        "activation": _activation(hf, "hidden_act", "gelu", {"gelu": "gelu"}),
        "norm": "post",
        "norm_eps": hf.get("layer_norm_eps", 1e-12),
        "dropout": _dropout(hf, "hidden_dropout_prob", "attention_probs_dropout_prob"),
        "attention": {"kind": "softmax"},
        "positions": {"kind": "learned"},
        "tie_head": hf.get("tie_word_embeddings", True),
        "n_token_types": hf.get("type_vocab_size", 2),
    }
    return convert(values, EncoderConfig, where=_WHERE)


_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
    "relu2": "relu2",
}


def _require(hf: Mapping[str, Any], **needed: Any) -> None:
    """Fields that are absent have the value that is needed: it is the default there too."""
    for field, value in needed.items():
        if hf.get(field, value) != value:
            raise UserError(
                f"{_WHERE}: {field} = {hf[field]!r}: only models with {value!r} can be imported"
            )


def _given(hf: Mapping[str, Any], field: str) -> Any:
    if field not in hf:
        raise UserError(f"{_WHERE}: {field} is missing: save the model with its configuration")
    return hf[field]


def _activation(hf: Mapping[str, Any], field: str, default: str, known: Mapping[str, str]) -> str:
    name = hf.get(field, default)
    if name not in known:
        raise UserError(
            f"{_WHERE}: {field} = {name!r}: only models with {' or '.join(known)} can be imported"
        )
    return known[name]


def _dropout(hf: Mapping[str, Any], *fields: str) -> Any:
    """All dropout is the same here."""
    shares = {field: hf.get(field, 0.1) for field in fields}
    if len(set(shares.values())) > 1:
        different = ", ".join(f"{field} = {share}" for field, share in shares.items())
        raise UserError(f"{_WHERE}: {different}: a model has one dropout here; make them equal")
    return shares[fields[0]]


# Weights


def gpt2_weights(tensors: Mapping[str, Tensor], config: DecoderConfig) -> dict[str, Tensor]:
    """The weights of a `LanguageModel` from those of a GPT2LMHeadModel.

    Raises:
        UserError: names the tensor that is missing or surplus, or doesn't fit the configuration.
    """
    given = _used(tensors, "transformer.", _GPT2_UNUSED)
    if config.tie_head:
        given = _with_tied(given, "lm_head.weight", "wte.weight")
    names = _GPT2 | _of_modules(_GPT2_MODULES) | _of_layers(_GPT2_LAYER, "h", config.n_layers)
    _require_all(given, names)
    with torch.device("meta"):
        model = LanguageModel(config, _rows(given["wte.weight"]))
    return _converted(given, names, model, _conv1d_layout)


def bert_weights(tensors: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """The weights of a `MaskedLanguageModel` from those of a BertForMaskedLM.

    Raises:
        UserError: names the tensor that is missing or surplus, or doesn't fit the configuration.
    """
    given = _with_decoder_bias(_used(tensors, "bert.", _BERT_UNUSED))
    if config.tie_head:
        given = _with_tied(given, "cls.predictions.decoder.weight", _BERT_WORDS)
    layers = _of_layers(_BERT_LAYER, "encoder.layer", config.n_layers)
    names = _BERT | _of_modules(_BERT_MODULES) | layers
    _require_all(given, names)
    with torch.device("meta"):
        model = MaskedLanguageModel(config, _rows(given[_BERT_WORDS]))
    return _converted(given, names, model, _same_layout)


_GPT2: Names = {
    "body.embedding.weight": ["wte.weight"],
    "body.absolute.vectors": ["wpe.weight"],
    "head.weight": ["lm_head.weight"],
}
_GPT2_MODULES: Names = {"body.norm": ["ln_f"]}
_GPT2_LAYER: Names = {
    "norm_attention": ["ln_1"],
    "self_attention.qkv_proj": ["attn.c_attn"],
    "self_attention.o_proj": ["attn.c_proj"],
    "norm_feed_forward": ["ln_2"],
    "feed_forward.up_proj": ["mlp.c_fc"],
    "feed_forward.down_proj": ["mlp.c_proj"],
}
_GPT2_UNUSED = r"h\.\d+\.attn\.(bias|masked_bias)"
"""The causal mask, which older files hold."""

_BERT_WORDS = "embeddings.word_embeddings.weight"
_BERT: Names = {
    "body.embedding.weight": [_BERT_WORDS],
    "body.absolute.vectors": ["embeddings.position_embeddings.weight"],
    "body.token_type_embedding.weight": ["embeddings.token_type_embeddings.weight"],
}
_BERT_MODULES: Names = {
    "body.norm": ["embeddings.LayerNorm"],
    "head.layer": ["cls.predictions.transform.dense"],
    "head.norm": ["cls.predictions.transform.LayerNorm"],
    "head.scores": ["cls.predictions.decoder"],
}
_BERT_LAYER: Names = {
    "self_attention.qkv_proj": [
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ],
    "self_attention.o_proj": ["attention.output.dense"],
    "norm_attention": ["attention.output.LayerNorm"],
    "feed_forward.up_proj": ["intermediate.dense"],
    "feed_forward.down_proj": ["output.dense"],
    "norm_feed_forward": ["output.LayerNorm"],
}
_BERT_UNUSED = r"embeddings\.position_ids|pooler\.dense\..*|cls\.seq_relationship\..*"
"""The numbers of positions, and the head that tells whether two sentences follow each other."""


def _of_modules(modules: Names) -> Names:
    """The weight and bias of each module."""
    return {
        f"{ours}.{part}": [f"{name}.{part}" for name in theirs]
        for ours, theirs in modules.items()
        for part in ("weight", "bias")
    }


def _of_layers(modules: Names, stack: str, n_layers: int) -> Names:
    """The weights and biases of the modules of all layers."""
    return _of_modules(
        {
            f"body.layers.{i}.{ours}": [f"{stack}.{i}.{name}" for name in theirs]
            for i in range(n_layers)
            for ours, theirs in modules.items()
        }
    )


def _used(tensors: Mapping[str, Tensor], prefix: str, unused: str) -> dict[str, Tensor]:
    """Tensors without the prefix that some files have, and without those that aren't needed."""
    named = {_name_of_today(name.removeprefix(prefix)): x for name, x in tensors.items()}
    return {name: x for name, x in named.items() if not re.fullmatch(unused, name)}


def _name_of_today(name: str) -> str:
    """The norms of old files have a gamma and a beta, which `transformers` renames too."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _with_tied(tensors: Mapping[str, Tensor], name: str, source: str) -> dict[str, Tensor]:
    """The tensors with one that is another; files hold it or leave it out."""
    if source not in tensors:
        raise UserError(f"{source}: no such tensor: save the whole model, with its head")
    if name in tensors and not torch.equal(tensors[name], tensors[source]):
        raise UserError(
            f"{name}: isn't {source}: set tie_word_embeddings to false in {_WHERE} if it is meant "
            "to be another"
        )
    return {**tensors, name: tensors[source]}


def _with_decoder_bias(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """BERT's scores have one bias of two names, of which older files hold the second alone."""
    given = dict(tensors)
    second = given.pop("cls.predictions.bias", None)
    return given if second is None else {"cls.predictions.decoder.bias": second, **given}


def _require_all(tensors: Mapping[str, Tensor], names: Names) -> None:
    """Exactly the tensors of these names."""
    needed = {name: None for theirs in names.values() for name in theirs}
    for name in needed:
        if name not in tensors:
            raise UserError(f"{name}: no such tensor: save the whole model, with its head")
    for name in tensors:
        if name not in needed:
            raise UserError(f"{name}: a tensor that a model of this {_WHERE} doesn't have")


def _rows(embedding: Tensor) -> int:
    """The size of the vocabulary; 1 of what is no matrix, which is refused later."""
    return embedding.shape[:1].numel()


def _converted(
    tensors: Mapping[str, Tensor],
    names: Names,
    model: nn.Module,
    layout: Callable[[str, Tensor], Tensor],
) -> dict[str, Tensor]:
    """The tensors by our names and in our layout, which `layout` tells from theirs and back."""
    weights = {}
    for ours, expected in model.state_dict().items():
        theirs = names[ours]
        for name, part in zip(theirs, expected.chunk(len(theirs)), strict=True):
            found, fitting = tuple(tensors[name].shape), tuple(layout(name, part).shape)
            if found != fitting:
                raise UserError(f"{name}: has shape {found}, where {_WHERE} makes it {fitting}")
        weights[ours] = torch.cat([layout(name, tensors[name]) for name in theirs])
    return weights


def _same_layout(_name: str, tensor: Tensor) -> Tensor:
    return tensor


def _conv1d_layout(name: str, tensor: Tensor) -> Tensor:
    """The modules c_attn, c_fc and c_proj are Conv1D: outputs are columns."""
    return tensor.mT if re.search(r"\.c_\w+\.weight$", name) else tensor
