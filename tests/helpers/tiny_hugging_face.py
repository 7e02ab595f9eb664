"""Tiny Hugging Face models of all families, and the models here that have their weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import torch
import transformers
from torch import Tensor, nn
from transformers import BertForMaskedLM, GPT2LMHeadModel, PreTrainedModel

from regard.huggingface.convert.families import FAMILIES
from regard.models.builders import LanguageModel, Model, make_model

VOCABULARY = 23
BLOCK = 16

M = TypeVar("M", bound=nn.Module)

_DECODER = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": BLOCK,
}
_ENCODER = _DECODER | {"pad_token_id": None}
_NO_IDS = {"bos_token_id": None, "eos_token_id": None}
_GEMMA = _DECODER | {"num_key_value_heads": 2, "head_dim": 6, "pad_token_id": None}
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_positions": BLOCK, "n_embd": 16, "n_layer": 2, "n_head": 4, **_NO_IDS},
    "gpt_neox": _DECODER | _NO_IDS,
    "llama": _DECODER | _NO_IDS,
    "mistral": _DECODER | _NO_IDS,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "qwen3_next": _DECODER
    | {
        "num_experts": 0,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 4,
    },
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "bert": _ENCODER,
    "roberta": _DECODER | {"pad_token_id": 1, "max_position_embeddings": BLOCK + 2},
    "distilbert": {
        "dim": 16,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 24,
        "max_position_embeddings": BLOCK,
        "pad_token_id": None,
    },
    "t5": {"d_model": 16, "d_kv": 4, "num_layers": 2, "num_heads": 4, "d_ff": 24},
    "bart": {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": BLOCK,
        "forced_eos_token_id": None,
    },
}
"""Two layers of four heads."""

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 50.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 3.0,
    "original_max_position_embeddings": 32,
}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}
_LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "gpt2": {
        "plain": {},
        "wide, exact gelu, scaled by layer": {
            "n_inner": 40,
            "activation_function": "gelu",
            "n_layer": 3,
            "scale_attn_by_inverse_layer_idx": True,
        },
        "unscaled, untied": {
            "scale_attn_weights": False,
            "tie_word_embeddings": False,
            "activation_function": "relu",
            "n_head": 2,
        },
    },
    "gpt_neox": {
        "plain": {"hidden_size": 32},
        "sequential, no bias": {
            "use_parallel_residual": False,
            "attention_bias": False,
            "rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 1.0},
        },
        "tied, half rotary, linear scaling": {
            "tie_word_embeddings": True,
            "hidden_act": "gelu_new",
            "rope_parameters": {**_LINEAR, "partial_rotary_factor": 0.5},
        },
    },
    "llama": {
        "plain": {},
        "grouped, biases, tied, llama3": {
            "num_key_value_heads": 2,
            "head_dim": 6,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": _LLAMA3,
        },
        "one key head, dynamic": {
            "num_key_value_heads": 1,
            "max_position_embeddings": BLOCK // 2,
            "rope_parameters": _DYNAMIC,
        },
    },
    "mistral": {
        "window of 3": {"sliding_window": 3, "num_key_value_heads": 2},
        "no window, wide heads": {
            "sliding_window": None,
            "head_dim": 6,
            "num_key_value_heads": 4,
            "rms_norm_eps": 0.1,
        },
        "window of 2, tied": {
            "sliding_window": 2,
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    },
    "qwen2": {
        "plain": {"num_key_value_heads": 4},
        "window in the second layer": {
            "num_key_value_heads": 2,
            "use_sliding_window": True,
            "sliding_window": 4,
            "max_window_layers": 1,
        },
        "tied, linear scaling": {
            "num_key_value_heads": 1,
            "tie_word_embeddings": True,
            "rope_parameters": _LINEAR,
        },
    },
    "qwen3": {
        "wide heads": {"num_key_value_heads": 4, "head_dim": 6},
        "grouped, biases": {"num_key_value_heads": 2, "head_dim": 4, "attention_bias": True},
        "tied, window in the first layer": {
            "num_key_value_heads": 1,
            "head_dim": 8,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 2,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    },
    "qwen3_next": {
        "four layers of period 4": {
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
        },
        "as many value heads, tied, first layer full": {
            "num_key_value_heads": 1,
            "head_dim": 16,
            "layer_types": ["full_attention", "linear_attention"],
            "linear_num_value_heads": 2,
            "linear_conv_kernel_dim": 2,
            "tie_word_embeddings": True,
            "mlp_only_layers": [0, 1],
            "num_experts": 4,
        },
        "full layers alone, half rotary": {
            "num_key_value_heads": 4,
            "head_dim": 8,
            "layer_types": ["full_attention"] * 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "partial_rotary_factor": 0.5,
            },
        },
    },
    "gemma": {
        "wide heads": {},
        "one key head, biases, untied": {
            "num_key_value_heads": 1,
            "head_dim": 4,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
        "relu, linear scaling": {"hidden_act": "relu", "rope_parameters": _LINEAR},
    },
    "gemma2": {
        "windows of 3": {"sliding_window": 3},
        "without bounds, three layers": {
            "num_hidden_layers": 3,
            "sliding_window": 2,
            "query_pre_attn_scalar": 4,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        },
        "tight bounds, no windows": {
            "layer_types": ["full_attention"] * 2,
            "attn_logit_softcapping": 0.7,
            "final_logit_softcapping": 9.0,
            "query_pre_attn_scalar": 6,
        },
    },
    "gemma3_text": {
        "eight layers of period 6": {"num_hidden_layers": 8, "sliding_window": 3},
        "other bases, linear scaling, bounded": {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 4,
            "query_pre_attn_scalar": 5,
            "final_logit_softcapping": 2.0,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 90.0, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
            },
        },
        "windows alone, biases, untied": {
            "layer_types": ["sliding_attention"] * 2,
            "sliding_window": 2,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    },
    "bert": {
        "plain": {},
        "three token types": {"type_vocab_size": 3, "num_hidden_layers": 3},
        "untied": {"tie_word_embeddings": False, "layer_norm_eps": 0.1, "num_attention_heads": 2},
    },
    "roberta": {
        "plain": {"type_vocab_size": 1},
        "relu, pad 4": {
            "hidden_act": "relu",
            "pad_token_id": 4,
            "max_position_embeddings": BLOCK + 5,
            "type_vocab_size": 1,
        },
        "untied": {"tie_word_embeddings": False, "type_vocab_size": 2, "num_hidden_layers": 3},
    },
    "distilbert": {
        "plain": {},
        "three layers": {"n_layers": 3, "n_heads": 2},
        "untied": {"tie_word_embeddings": False, "hidden_dim": 40},
    },
    "t5": {
        "plain": {},
        "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 6},
        "deep decoder, few buckets": {
            "num_decoder_layers": 3,
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 12,
            "feed_forward_proj": "gated-silu",
        },
    },
    "bart": {
        "plain": {},
        "scaled, uneven": {
            "scale_embedding": True,
            "decoder_layers": 1,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 40,
        },
        "gelu_new, three layers": {"activation_function": "gelu_new", "encoder_layers": 3},
    },
}
"""Three configurations of each family."""
CASES = [(family, variant) for family, variants in VARIANTS.items() for variant in variants]


def tiny(
    family: str, variant: str, *, dtype: torch.dtype = torch.float64, **settings: Any
) -> PreTrainedModel:
    """A model of a family, with weights so large that every part matters."""
    own = FAMILIES[family]
    fields = SIZES[family] | VARIANTS[family][variant] | settings
    kind: Any = getattr(transformers, own.architecture)
    config = kind.config_class(**{"vocab_size": VOCABULARY, **fields})
    model: PreTrainedModel = sharp(kind(config), dtype)
    if family == "t5" and fields.get("tie_word_embeddings") is False:
        head: Any = model.lm_head
        head.weight = nn.Parameter(head.weight + 1)  # as in T5 v1.1
    return model


def tiny_gpt2(*, dtype: torch.dtype = torch.float64, **settings: Any) -> GPT2LMHeadModel:
    """A GPT-2."""
    model = tiny("gpt2", "plain", dtype=dtype, **settings)
    assert isinstance(model, GPT2LMHeadModel)
    return model


def tiny_bert(*, dtype: torch.dtype = torch.float64, **settings: Any) -> BertForMaskedLM:
    """A BERT; the embedding of padding learns as any other."""
    model = tiny("bert", "plain", dtype=dtype, **settings)
    assert isinstance(model, BertForMaskedLM)
    return model


def sharp(model: M, dtype: torch.dtype) -> M:
    """The model in evaluation mode, with weights so large that every part matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            one_at_first = tensor.ndim == 1 and name.endswith("weight")  # of a norm
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(noise * 0.4 + float(one_at_first))
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model.to(dtype).eval()


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.state_dict())


def ours(hf: PreTrainedModel) -> Model:
    """The same model here."""
    family = FAMILIES[hf.config.model_type]
    tensors = tensors_of(hf)
    config = family.read_config(family.amend(hf.config.to_dict(), tensors))
    weights, _ = family.load_weights(tensors, config)
    model = make_model(config, family.head, VOCABULARY).to(hf.dtype)
    assert not model.load_state_dict(weights, strict=False).unexpected_keys
    return model.eval()


def language_model(hf: GPT2LMHeadModel) -> LanguageModel:
    """The same model here."""
    model = ours(hf)
    assert isinstance(model, LanguageModel)
    return model


def without_upcasts(model: M) -> M:
    """The model with norms, rotations, softmax and states in its own precision, not in float32."""
    for module in model.modules():
        name = type(module).__name__
        if name.endswith("RotaryEmbedding"):
            with _float32_is_float64():
                module.__init__(module.config)  # type: ignore[misc]  # the frequencies once more
        if name.endswith(_UPCASTING):
            module.forward = partial(_lifted, module.forward)
    return model


_UPCASTING = (
    *("RMSNorm", "RMSNormGated", "T5LayerNorm", "RotaryEmbedding"),
    *("Gemma2Attention", "GatedDeltaNet"),
)


def _lifted(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with _float32_is_float64():
        return forward(*args, **kwargs)


@contextmanager
def _float32_is_float64() -> Iterator[None]:
    with (
        patch.object(torch, "float", torch.float64),
        patch.object(torch, "float32", torch.float64),
        patch.object(Tensor, "float", Tensor.double),
    ):
        yield
