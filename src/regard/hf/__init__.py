"""Runs as transformers models: `import regard.hf` registers them with its Auto classes."""

from regard.errors import UserError

try:
    import transformers
except ImportError:
    raise UserError(
        "import regard.hf: needs transformers; install it: pip install 'regard[hf]'"
    ) from None

from regard.hf.loading import RegardConfig
from regard.hf.models import (
    RegardForCausalLM,
    RegardForMaskedLM,
    RegardForSeq2SeqLM,
    RegardForSequenceClassification,
    RegardForTokenClassification,
)
from regard.hf.tokenizer import RegardTokenizer
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
