"""Refuse generation options that runs don't support, before transformers reads any of them.

For some deprecated modes, transformers loads code from the Hub (`custom_generate`); other options
need a cache that can be cropped, or the attention weights of each step.
"""

import inspect
from collections.abc import Mapping
from typing import Any

from transformers import GenerationMixin

from regard.errors import UserError

UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "assistant_early_exit": (),
    "assistant_model": (),
    "cache_config": (),
    "cache_implementation": ("dynamic",),
    "constraints": (),
    "custom_generate": (),
    "diversity_penalty": (0,),
    "dola_layers": (),
    "force_words_ids": (),
    "guidance_scale": (1,),
    "low_memory": (False,),
    "num_beam_groups": (1,),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
    "penalty_alpha": (0,),
    "prefill_chunk_size": (),
    "prompt_lookup_num_tokens": (),
    "token_healing": (False,),
    "use_mtp": (False,),
}
"""Refused options → values besides None that have no effect."""

_SIGNATURE = inspect.signature(GenerationMixin.generate)


def check_options(
    model: GenerationMixin, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Check that a run supports the options of `generate`.

    Options are arguments, or fields of the given generation configuration, or else of the model's.

    Raises:
        UserError: an option isn't supported; the message names it.
    """
    given = dict(_SIGNATURE.bind(model, *arguments, **named).arguments)
    given |= given.pop("kwargs", {})
    sources = [given, _fields(given.get("generation_config")), _fields(model.generation_config)]
    for name, harmless in UNSUPPORTED.items():
        values = [source[name] for source in sources if source.get(name) is not None]
        if values and values[0] not in harmless:
            shown = values[0] if isinstance(values[0], str | int | float) else "…"
            raise UserError(f"generate: {name}={shown} isn't supported for a run; leave it out")


def _fields(config: Any) -> Mapping[str, Any]:
    return {} if config is None else vars(config)
