"""The tokenizer of a run as a transformers tokenizer."""

from pathlib import Path
from typing import Any, Self

from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from regard.models.config import MaskedLMHeadConfig
from regard.runs.recipe import load_recipe, text_affixes
from regard.text.template import Affixes, Template
from regard.text.tokenizer import Tokenizer


class RegardTokenizer(PreTrainedTokenizerFast):
    """The tokenizer of a run, with the template's ids around each text or pair of texts."""

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, pretrained_model_name_or_path: str | Path, *inputs: Any, **options: Any
    ) -> Self:
        """Load the tokenizer of a run.

        Texts to continue are padded on the left. Text that spells a special token is ordinary text,
        except for masked language models; `split_special_tokens` chooses.

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
        backend.post_processor = _post_processor(template, text_affixes(recipe, template))
        types = ["token_type_ids"] if recipe.uses_token_types else []
        tokenizer.model_input_names = ["input_ids", *types, "attention_mask"]
        return tokenizer


def _post_processor(template: Template, outer: Affixes) -> processors.TemplateProcessing:
    """Post-processor that adds the ids of a template around texts, as `Template.join` does."""
    parts = {
        "begin": outer.prefix,
        "before_first": template.first.prefix,
        "behind_first": template.first.suffix,
        "before_second": template.second.prefix,
        "behind_second": template.second.suffix,
        "end": outer.suffix,
    }
    single = "begin:0 $A:0 end:0"
    pair = "begin:0 before_first:0 $A:0 behind_first:0 before_second:1 $B:1 behind_second:1 end:1"
    name = template.tokenizer.native.id_to_token
    return processors.TemplateProcessing(
        single=_pieces(single, parts),
        pair=_pieces(pair, parts),
        special_tokens=[
            {"id": part, "ids": list(ids), "tokens": [name(i) for i in ids]}
            for part, ids in parts.items()
            if ids
        ],
    )


def _pieces(template: str, parts: dict[str, tuple[int, ...]]) -> list[str]:
    """The pieces of a template without empty parts."""
    return [piece for piece in template.split() if parts.get(piece.partition(":")[0], (0,))]
