"""Small encoders, decoders and encoder–decoders for the tasks of `regard tasks`."""

from typing import Annotated

from msgspec import Meta

from regard.config import override
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES

ENCODER, DECODER, PAIR = "encoder", "decoder", "encoder–decoder"
TEST = 200
"""Number of test questions."""

Steps = Annotated[int, Meta(ge=1, le=2000, description="training steps of each model")]
Width = Annotated[int, Meta(ge=16, le=256, multiple_of=16, description="width of the models")]
"""Parameters shared by studies."""


def recipe_for(
    task: str, family: str, steps: int, width: int, seed: int, *, source_width: int | None = None
) -> Recipe:
    """Return a task's recipe for one of the families.

    The encoder of an encoder–decoder has the width of the decoder, unless `source_width` is given.
    """
    sizes = ["n_layers=2", "n_heads=4", "dropout=0", "positions.kind=rotary"]
    parts = {
        ENCODER: ["kind=encoder", "context_length=128", f"d_model={width}", *sizes],
        DECODER: ["kind=decoder", "context_length=192", f"d_model={width}", *sizes],
        PAIR: ["kind=encoder-decoder"]
        + [
            f"{side}.{setting}"
            for side, d in (("encoder", source_width or width), ("decoder", width))
            for setting in ("context_length=128", f"d_model={d}", *sizes)
        ],
    }
    return override(
        RECIPES[task],
        [
            *(f"model.{setting}" for setting in parts[family]),
            *(["head.kind=lm"] if family == PAIR else []),
            *(f"training.steps={steps}", "training.batch=64"),
            *(f"task.test={TEST}", f"seed={seed}"),
        ],
    )
