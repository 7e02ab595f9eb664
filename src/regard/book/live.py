"""The live model: a small trained decoder whose weights are in the book.

It is a run in the folder `live_model`, trained by docs/live_model.py. The page computes it with
static/live_model.js.
"""

from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from regard.models.config import DecoderConfig, ModelConfig
from regard.runs.run import Run

_FOLDER = files("regard.book") / "live_model"
_FIELDS = ("n_layers", "n_heads", "d_model", "norm_eps", "context_length")
"""Options of the model in the page's data; live_model.js hard-codes all others."""


@cache
def live_run() -> Run:
    """Return the model with its tokenizer, with weights rounded to float16."""
    with as_file(_FOLDER) as folder:
        return Run.load(folder)


@cache
def live_data() -> dict[str, Any]:
    """Return the model for the page: sizes, tokens by id, and a safetensors file as base64."""
    run = live_run()
    weights = (_FOLDER / "model.safetensors").read_bytes()
    return page_model(run.recipe.model, run.tokenizer.native.get_vocab(), weights)


def page_model(
    config: ModelConfig, vocabulary: Mapping[str, int], weights: bytes
) -> dict[str, Any]:
    """Return a model as data for live_model.js.

    Raises:
        ValueError: live_model.js doesn't support the model's options.
    """
    if not isinstance(config, DecoderConfig) or config != _computed(config):
        raise ValueError("live_model.js computes a decoder with gelu-tanh and a tied head alone")
    return {
        "config": {name: getattr(config, name) for name in _FIELDS},
        "tokens": sorted(vocabulary, key=vocabulary.__getitem__),
        "weights": b64encode(weights).decode(),
    }


def _computed(config: DecoderConfig) -> DecoderConfig:
    """Return the configuration with these sizes that live_model.js supports."""
    sizes = {name: getattr(config, name) for name in (*_FIELDS, "dropout")}
    return DecoderConfig(**sizes, activation="gelu-tanh", tie_head=True)
