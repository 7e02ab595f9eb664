"""Tiny GPT-2s and BERTs of Hugging Face, and the models here that have their weights."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from regard.huggingface.weights import bert_config, bert_weights, gpt2_config, gpt2_weights
from regard.models.builders import LanguageModel, MaskedLanguageModel

VOCABULARY = 23
BLOCK = 16

M = TypeVar("M", bound=nn.Module)


def tiny_gpt2(*, dtype: torch.dtype = torch.float64, **settings: Any) -> GPT2LMHeadModel:
    """Two layers of four heads."""
    sizes = {"n_positions": BLOCK, "n_embd": 16, "n_layer": 2, "n_head": 4}
    marks = {"bos_token_id": None, "eos_token_id": None}
    config = GPT2Config(**{"vocab_size": VOCABULARY, **sizes, **marks, **settings})
    return sharp(GPT2LMHeadModel(config), dtype)


def tiny_bert(*, dtype: torch.dtype = torch.float64, **settings: Any) -> BertForMaskedLM:
    """Two layers of four heads; the embedding of padding learns as any other."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    others = {"intermediate_size": 24, "max_position_embeddings": BLOCK}
    marks = {"pad_token_id": None}
    config = BertConfig(**{"vocab_size": VOCABULARY, **sizes, **others, **marks, **settings})
    return sharp(BertForMaskedLM(config), dtype)


def sharp(model: M, dtype: torch.dtype) -> M:
    """The model in evaluation mode, with weights so large that every part matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one_at_first = parameter.ndim == 1 and name.endswith("weight")  # of a norm
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.4 + float(one_at_first))
    return model.to(dtype).eval()


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.state_dict())


def language_model(hf: GPT2LMHeadModel) -> LanguageModel:
    """The same model here."""
    config = gpt2_config(hf.config.to_dict())
    model = LanguageModel(config, VOCABULARY).to(hf.dtype)
    model.load_state_dict(gpt2_weights(tensors_of(hf), config))
    return model.eval()


def masked_language_model(hf: BertForMaskedLM) -> MaskedLanguageModel:
    """The same model here."""
    config = bert_config(hf.config.to_dict())
    model = MaskedLanguageModel(config, VOCABULARY).to(hf.dtype)
    model.load_state_dict(bert_weights(tensors_of(hf), config))
    return model.eval()
