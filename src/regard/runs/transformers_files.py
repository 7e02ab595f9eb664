"""What transformers reads in a run folder: config.json and generation_config.json.

Both are derived from config.toml and the tokenizer, and nothing here reads them.
"""

import json
from typing import Any

from regard.models.config import EncoderDecoderConfig, TransformerConfig
from regard.runs.recipe import Recipe
from regard.text.template import Template
from regard.text.tokenizer import Tokenizer

MODEL_TYPE = "regard"
"""The `model_type` of a run's config.json."""
TOKENIZER_CLASS = "RegardTokenizer"
"""The `tokenizer_class` of a run; without `import regard.hf`, transformers takes its own."""
FILES = ("config.json", "generation_config.json")


def transformers_files(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, bytes]:
    """Return the content of each file that a run has for transformers, by its name.

    Raises:
        UserError: the tokenizer lacks a special token of the template.
    """
    tables = (transformers_config(recipe, tokenizer), generation_config(recipe, tokenizer))
    files = dict(zip(FILES, map(to_json, tables), strict=True))
    return files if recipe.head.__struct_config__.tag == "lm" else {FILES[0]: files[FILES[0]]}


def transformers_config(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of config.json: model type, sizes, special ids and labels."""
    model = recipe.model
    stack = model.decoder if isinstance(model, EncoderDecoderConfig) else model
    heads = {"num_attention_heads": stack.n_heads} if isinstance(stack, TransformerConfig) else {}
    layers = {"num_hidden_layers": stack.n_layers} if hasattr(stack, "n_layers") else {}
    labels = getattr(recipe.head, "labels", ())
    named = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    return {
        "model_type": MODEL_TYPE,
        "vocab_size": recipe.vocabulary_size(tokenizer),
        "max_position_embeddings": model.context_length,
        "hidden_size": stack.d_model,
        **layers,
        **heads,
        "is_encoder_decoder": recipe.has_source,
        **special_ids(recipe, tokenizer),
        **(named if labels else {}),
    }


def generation_config(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of generation_config.json: special ids, and all ids that end a text."""
    ids = special_ids(recipe, tokenizer) | forced_ids(recipe, tokenizer)
    ends = {"eos_token_id": list(tokenizer.special.stop_ids) or None}
    return ids | ends


def special_ids(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """The special ids by transformers' names; null where there is none, as defaults differ."""
    special = tokenizer.special
    ids = {f"{role}_token_id": getattr(special, role) for role in ("pad", "bos", "eos")}
    if len(special.stop_ids) > 1:
        ids["eos_token_id"] = list(special.stop_ids)
    if recipe.has_source:
        ids["decoder_start_token_id"] = special.decoder_start_id
    return ids


def forced_ids(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """The token that begins each target, as the template has it."""
    if not recipe.has_source:
        return {}
    prefix = Template(recipe.template, tokenizer).target.prefix
    return {"forced_bos_token_id": prefix[0]} if len(prefix) == 1 else {}


def to_json(table: dict[str, Any]) -> bytes:
    """A table as the content of a JSON file."""
    return json.dumps(table, indent=2, ensure_ascii=False).encode()
