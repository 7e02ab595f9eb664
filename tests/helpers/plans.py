"""Plans of trainings, each by its source, for tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.examples import Example, Examples
from regard.text.corpus import Corpus
from regard.text.tokenizer import Tokenizer
from regard.training.plan import Plan, plan_more_steps, plan_training
from regard.training.sources.choose import choose_source, choose_text, own_source
from regard.training.sources.examples import task_kind
from regard.training.sources.questions import QuestionSource


def plan_task(
    out: Path,
    recipe: Recipe,
    examples: Sequence[Example] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    start: Run | None = None,
) -> Plan:
    """Plan training for a recipe's task, by default on the task's own examples."""
    source = own_source(recipe)
    if examples is not None and recipe.task is not None:
        source = choose_source(task_kind(recipe.task), examples)
    return plan_training(source, recipe, out, start, tokenizer=tokenizer)


def plan_named(task: str, data: Any = None, *, out: Path, **choices: Any) -> Plan:
    """Plan training as `regard train` does."""
    source = choose_source(task, data, test=choices.pop("test", None), mix=choices.pop("mix", None))
    more_steps = choices.pop("more_steps", None)
    if more_steps is None:
        return plan_training(source, choices.pop("recipe", None), out, **choices)
    return plan_more_steps(source, out, choices.pop("start"), more_steps, **choices)


def plan_pretraining(
    corpus: Corpus,
    out: Path,
    recipe: Recipe | str = "default",
    settings: Sequence[str] = (),
    *,
    questions: Examples = (),
    tokenizer: Tokenizer | None = None,
    index: bool = True,
    mix: str | None = None,
) -> Plan:
    """Plan training on documents, as `regard pretrain` does."""
    source = choose_text(corpus, questions, index=index, mix=mix)
    return plan_training(source, recipe, out, settings=settings, tokenizer=tokenizer)


def plan_text(corpus: Corpus, out: Path, recipe: Recipe | str | None = None) -> Plan:
    """Plan training on windows of a text, as `regard train text` does."""
    return plan_training(choose_source("text", corpus), recipe, out)


def plan_questions(
    questions: Examples, out: Path, recipe: Recipe | str, *, tokenizer: Tokenizer | None = None
) -> Plan:
    """Plan training on questions, as `regard train questions` does."""
    return plan_training(QuestionSource(questions), recipe, out, tokenizer=tokenizer)


def plan_finetuning(
    parent: Run,
    questions: Examples,
    out: Path,
    recipe: Recipe | str | None = None,
    settings: Sequence[str] = (),
) -> Plan:
    """Plan training of a run on questions, as `regard finetune` does."""
    source = QuestionSource(questions, "finetuning")
    return plan_training(source, recipe, out, parent, settings=settings)
