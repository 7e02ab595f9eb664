"""What is said of a run before it is loaded."""

from typing import Any

from regard.errors import RegardError
from regard.models.config import EncoderDecoderConfig
from regard.models.config_heads import LanguageConfig
from regard.models.config_recurrent import RecurrentEncoderDecoderConfig
from regard.runs.toml import read_recipe
from regard.serve.failures import reason
from regard.serve.offers import Offer

_PAIRS = EncoderDecoderConfig | RecurrentEncoderDecoderConfig


def describe(one: Offer) -> dict[str, Any]:
    """Its name, its family and size, whether it writes, and whether it writes about a source."""
    try:
        recipe = read_recipe(one.path / "config.toml")
    except RegardError as error:
        return {"name": one.name, "about": reason(error, one), "writes": False, "pair": False}
    family = recipe.model.__struct_config__.tag
    return {
        "name": one.name,
        "about": f"{family}, {recipe.model.summary}",
        "writes": isinstance(recipe.head, LanguageConfig),
        "pair": isinstance(recipe.model, _PAIRS),
    }
