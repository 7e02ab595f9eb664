"""Regard: an attention workbench. Build, train, compare and look inside sequence models.

The functions are imported on first use, so that `import regard` is instant; `dir(regard)` lists
them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from regard.api import answer as answer
    from regard.api import beam_search as beam_search
    from regard.api import compare as compare
    from regard.api import compare_suite as compare_suite
    from regard.api import compile as compile
    from regard.api import convert as convert
    from regard.api import evaluate as evaluate
    from regard.api import finetune as finetune
    from regard.api import generate as generate
    from regard.api import label as label
    from regard.api import load as load
    from regard.api import pretrain as pretrain
    from regard.api import train as train
    from regard.comparison.table import Comparison as Comparison
    from regard.edits.apply import edited as edited
    from regard.edits.effects import effects as effects
    from regard.edits.effects import trace as trace
    from regard.edits.faithfulness import faithfulness as faithfulness
    from regard.edits.found import Effects as Effects
    from regard.edits.lens import lens as lens
    from regard.edits.paths import paths as paths
    from regard.edits.sites import sites as sites
    from regard.errors import UserError as UserError
    from regard.evaluation.answers import Answer as Answer
    from regard.evaluation.evaluate import Evaluation as Evaluation
    from regard.explorer.from_tensors import look_at_attention as look_at_attention
    from regard.explorer.huggingface.adapter import HuggingFaceModel as HuggingFaceModel
    from regard.explorer.look import look as look
    from regard.explorer.page import View as View
    from regard.packing import pack as pack
    from regard.runs.recipe import Recipe as Recipe
    from regard.runs.run import Run as Run
    from regard.tasks.examples import Example as Example
    from regard.tasks.world import WorldConfig as WorldConfig
    from regard.tasks.world import make_world as make_world
    from regard.training.pruning import prune as prune

_NAMES = {
    "api": "answer beam_search compare compare_suite compile convert evaluate finetune generate "
    "label load pretrain train",
    "comparison.table": "Comparison",
    "edits.apply": "edited",
    "edits.effects": "effects trace",
    "edits.faithfulness": "faithfulness",
    "edits.found": "Effects",
    "edits.lens": "lens",
    "edits.paths": "paths",
    "edits.sites": "sites",
    "errors": "UserError",
    "evaluation.answers": "Answer",
    "evaluation.evaluate": "Evaluation",
    "explorer.from_tensors": "look_at_attention",
    "explorer.huggingface.adapter": "HuggingFaceModel",
    "explorer.look": "look",
    "explorer.page": "View",
    "packing": "pack",
    "runs.recipe": "Recipe",
    "runs.run": "Run",
    "tasks.examples": "Example",
    "tasks.world": "WorldConfig make_world",
    "training.pruning": "prune",
}
_MODULES = {name: f"regard.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*_MODULES, "__version__"]
