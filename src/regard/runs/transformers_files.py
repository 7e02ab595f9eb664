"""The files of a run that transformers reads: derived from config.toml and the tokenizer.

Regard itself never reads them.
"""

from typing import Any

from regard.files import to_json
from regard.models.config import EncoderDecoderConfig, TransformerConfig
from regard.models.head_config import LMHeadConfig
from regard.runs.recipe import Recipe
from regard.text.template import Template
from regard.text.tokenizer import Tokenizer

MODEL_TYPE = "regard"
"""The `model_type` of a run's config.json."""
AUTO_CLASSES = {
    "lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
}
"""The class of transformers that loads a run, by the kind of its head."""
TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "RegardTokenizer",
    "auto_map": {"AutoTokenizer": [None, "modeling_regard.RegardTokenizer"]},
}
"""The classes in tokenizer_config.json; the pair is a slow and a fast tokenizer."""
TRANSFORMERS_CODE = '''"""The transformers classes of this run, from the package regard."""

from regard.huggingface.transformers import *  # noqa: F403
'''
"""The content of modeling_regard.py, which `auto_map` of config.json names."""
TRANSFORMERS_FILES = ("config.json", "generation_config.json", "modeling_regard.py")


def transformers_files(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, bytes]:
    """Return the content of each file that a run has for transformers, by its name.

    Raises:
        UserError: the tokenizer lacks a special token of the template.
    """
    config = transformers_config(recipe, tokenizer) | {"auto_map": auto_map(recipe)}
    files = {"config.json": to_json(config), "modeling_regard.py": TRANSFORMERS_CODE.encode()}
    if isinstance(recipe.head, LMHeadConfig):
        files["generation_config.json"] = to_json(generation_config(recipe, tokenizer))
    return files


def auto_class(recipe: Recipe) -> str | None:
    """Return the class of transformers that loads a run, if there is one."""
    if recipe.has_source:
        return "AutoModelForSeq2SeqLM"
    return AUTO_CLASSES.get(str(recipe.head.__struct_config__.tag))


def auto_map(recipe: Recipe) -> dict[str, str]:
    """Return the class of modeling_regard.py for each Auto class of transformers."""
    classes = {"AutoConfig": "RegardConfig"}
    if (auto := auto_class(recipe)) is not None:
        classes[auto] = auto.replace("AutoModel", "Regard")
    return {auto: f"modeling_regard.{name}" for auto, name in classes.items()}


def transformers_config(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of config.json: model type, sizes, special ids and labels."""
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
    """Return the content of generation_config.json: special ids, and all ids that end a text."""
    ids = special_ids(recipe, tokenizer) | forced_ids(recipe, tokenizer)
    ends = {"eos_token_id": list(tokenizer.special.stop_ids) or None}
    return ids | ends


def special_ids(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return special ids by transformers' names; null if there is none, as its defaults differ."""
    special = tokenizer.special
    ids = {f"{role}_token_id": getattr(special, role) for role in ("pad", "bos", "eos")}
    if len(special.stop_ids) > 1 or special.eos not in (None, *special.stop_ids):
        ids["eos_token_id"] = list(special.stop_ids)
    if recipe.has_source:
        ids["decoder_start_token_id"] = special.decoder_start_id
    return ids


def forced_ids(recipe: Recipe, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the token with which the template begins each target, if it is a single one."""
    if not recipe.has_source:
        return {}
    prefix = Template(recipe.template, tokenizer).target.prefix
    return {"forced_bos_token_id": prefix[0]} if len(prefix) == 1 else {}
