"""Runs as transformers models; importing this package registers them with its Auto classes."""

from regard.errors import UserError

try:
    import transformers
except ImportError:
    raise UserError(
        "import regard.huggingface.transformers: needs transformers; install it: "
        "pip install 'regard[hf]'"
    ) from None

from regard.huggingface.transformers.loading import RegardConfig
from regard.huggingface.transformers.models import (
    RegardForCausalLM,
    RegardForMaskedLM,
    RegardForSeq2SeqLM,
    RegardForSequenceClassification,
    RegardForTokenClassification,
)
from regard.huggingface.transformers.tokenizer import RegardTokenizer
from regard.runs.transformers_files import MODEL_TYPE

__all__ = [
    "RegardConfig",
    "RegardForCausalLM",
    "RegardForMaskedLM",
    "RegardForSeq2SeqLM",
    "RegardForSequenceClassification",
    "RegardForTokenClassification",
    "RegardTokenizer",
]

transformers.AutoConfig.register(MODEL_TYPE, RegardConfig, exist_ok=True)
transformers.AutoTokenizer.register(
    RegardConfig, fast_tokenizer_class=RegardTokenizer, exist_ok=True
)
for _model in (
    RegardForCausalLM,
    RegardForMaskedLM,
    RegardForSeq2SeqLM,
    RegardForSequenceClassification,
    RegardForTokenClassification,
):
    getattr(transformers, _model.auto_class).register(RegardConfig, _model, exist_ok=True)
