"""The tokenizer of a run as a transformers tokenizer."""

from pathlib import Path
from typing import Any, Self

from transformers import PreTrainedTokenizerFast

from regard.huggingface.post_processor import post_processor
from regard.models.head_config import MaskedLMHeadConfig
from regard.runs.recipe import load_recipe, text_affixes
from regard.text.template import Template
from regard.text.tokenizer import Tokenizer


class RegardTokenizer(PreTrainedTokenizerFast):
    """The tokenizer of a run, with the template's ids around each text or pair of texts.

    >>> tokenizer = RegardTokenizer.from_pretrained("tiny")
    >>> inputs = tokenizer("Ada was born in", return_tensors="pt")
    >>> inputs.input_ids.shape  # with the token before each text
    torch.Size([1, 5])
    """

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *inputs: Any, **options: Any
    ) -> Self:
        """Load the tokenizer of a run.

        Models that generate pad texts on the left. Special tokens in a text are read as plain text,
        except for masked language models; `split_special_tokens` overrides this.

        Raises:
            UserError: the folder is not a run, or is damaged.
        """
        path = Path(pretrained_model_name_or_path)
        recipe = load_recipe(path)
        defaults = {
            "padding_side": "left" if recipe.continues_texts else "right",
            "model_max_length": recipe.max_source_tokens,
            "split_special_tokens": not isinstance(recipe.head, MaskedLMHeadConfig),
        }
        tokenizer: Self = super().from_pretrained(path, *inputs, **{**defaults, **options})
        template = Template(recipe.template, Tokenizer.load(path))
        backend: Any = tokenizer.backend_tokenizer
        backend.post_processor = post_processor(template, text_affixes(recipe, template))
        types = ["token_type_ids"] if recipe.uses_token_types else []
        tokenizer.model_input_names = ["input_ids", *types, "attention_mask"]
        return tokenizer
