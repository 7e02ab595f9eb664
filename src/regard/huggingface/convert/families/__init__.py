"""Families of Hugging Face models for import and export, with one table each."""

from regard.huggingface.convert.families.bart import BART
from regard.huggingface.convert.families.bert import BERT, DISTILBERT, ROBERTA
from regard.huggingface.convert.families.gemma import GEMMA, GEMMA2, GEMMA3
from regard.huggingface.convert.families.gpt2 import GPT2
from regard.huggingface.convert.families.gpt_neox import GPT_NEOX
from regard.huggingface.convert.families.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from regard.huggingface.convert.families.qwen3_next import QWEN3_NEXT
from regard.huggingface.convert.families.t5 import T5

FAMILIES = {
    family.model_type: family
    for family in (
        GPT2,
        GPT_NEOX,
        LLAMA,
        MISTRAL,
        QWEN2,
        QWEN3,
        QWEN3_NEXT,
        GEMMA,
        GEMMA2,
        GEMMA3,
        BERT,
        ROBERTA,
        DISTILBERT,
        T5,
        BART,
    )
}
"""By `model_type`."""
