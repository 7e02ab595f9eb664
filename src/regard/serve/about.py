"""What is said of a model before it is loaded."""

from typing import Any

from regard.errors import RegardError
from regard.models.config import EncoderDecoderConfig
from regard.models.config_heads import LanguageConfig
from regard.models.config_recurrent import RecurrentEncoderDecoderConfig
from regard.runs.hugging_face import read_config
from regard.runs.toml import read_recipe
from regard.serve.failures import reason
from regard.serve.offers import HuggingFaceOffer, Offer

_PAIRS = EncoderDecoderConfig | RecurrentEncoderDecoderConfig


def describe(one: Offer) -> dict[str, Any]:
    """Its name, its family and size, whether it writes, and whether it writes about a source."""
    try:
        found = _hugging_face(one) if isinstance(one, HuggingFaceOffer) else _run(one)
    except RegardError as error:
        found = {"about": reason(error, one), "writes": False, "pair": False}
    return {"name": one.name, **found}


def _run(one: Offer) -> dict[str, Any]:
    recipe = read_recipe(one.path / "config.toml")
    family = recipe.model.__struct_config__.tag
    return {
        "about": f"{family}, {recipe.model.summary}",
        "writes": isinstance(recipe.head, LanguageConfig),
        "pair": isinstance(recipe.model, _PAIRS),
    }


def _hugging_face(one: Offer) -> dict[str, Any]:
    """Such a model is looked at, and doesn't write here."""
    config = read_config(one.path)
    return {
        "about": f"{config.get('model_type', 'a model')} of Hugging Face",
        "writes": False,
        "pair": bool(config.get("is_encoder_decoder")),
    }
