"""Regard: an attention workbench. Build, train, compare and look inside sequence models.

The names below are loaded when they are first used, so that `import regard` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from regard.api import (
        answer,
        beam_search,
        evaluate,
        finetune,
        generate,
        label,
        load,
        pretrain,
        score,
        train,
        train_task,
    )
    from regard.explorer.alone import look_at_attention
    from regard.explorer.hugging_face import HuggingFaceModel
    from regard.explorer.look import look
    from regard.tasks.world import WorldConfig, make_world

_HOMES = {
    "HuggingFaceModel": "regard.explorer.hugging_face",
    "answer": "regard.api",
    "beam_search": "regard.api",
    "evaluate": "regard.api",
    "finetune": "regard.api",
    "generate": "regard.api",
    "label": "regard.api",
    "load": "regard.api",
    "look": "regard.explorer.look",
    "look_at_attention": "regard.explorer.alone",
    "pretrain": "regard.api",
    "score": "regard.api",
    "train_task": "regard.api",
    "train": "regard.api",
    "WorldConfig": "regard.tasks.world",
    "make_world": "regard.tasks.world",
}

__all__ = [
    "HuggingFaceModel",
    "WorldConfig",
    "answer",
    "beam_search",
    "evaluate",
    "finetune",
    "generate",
    "label",
    "load",
    "look",
    "look_at_attention",
    "make_world",
    "pretrain",
    "score",
    "train",
    "train_task",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
