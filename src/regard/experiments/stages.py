"""Recipes of compared training stages: on text, on questions only, and fine-tuning after text."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from regard.config import override
from regard.runs.recipe import Recipe
from regard.runs.recipes import RECIPES, find_recipe


class Stages(NamedTuple):
    """Recipes with the same model and different training."""

    pretraining: Recipe
    questions: Recipe
    """Training from scratch on questions."""
    finetuning: Recipe
    """Training on questions after pretraining."""


def choose_stages(recipe: str, settings: Sequence[str] = ()) -> Stages:
    """Return the recipes of all stages, given that of pretraining, with settings.

    Settings such as training.steps=600 apply to pretraining, questions.epochs=3 and
    finetuning.epochs=3 to the other stages, and model.n_layers=6 to all.

    Raises:
        UserError: there is no such recipe, or a setting is invalid.
    """
    groups: dict[str, list[str]] = {"questions": [], "finetuning": [], "": []}
    for setting in settings:
        section, _, rest = setting.partition(".")
        of_stage = section in groups and bool(rest)
        groups[section if of_stage else ""].append(f"training.{rest}" if of_stage else setting)
    pretraining = find_recipe(recipe, groups[""])
    questions = f"{recipe}-questions"
    trained_by = {
        "questions": questions if questions in RECIPES else "questions",
        "finetuning": pretraining.finetuning,
    }
    others = {
        stage: override(replace(pretraining, training=find_recipe(name).training), groups[stage])
        for stage, name in trained_by.items()
    }
    return Stages(pretraining, **others)


def text_only(recipe: Recipe, steps: int) -> Recipe:
    """Return a recipe for text only, with the share of `steps` that was on text."""
    objective = recipe.objective
    share = 1 - objective.questions / objective.total
    text = ["objective.questions=0", "objective.cloze_relevance=0"]
    return override(recipe, [*text, f"training.steps={round(share * steps)}"])
