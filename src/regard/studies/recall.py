"""Recalled or made up? Pretrain on text, ask, and know which answers to trust.

Stanford CS224N's assignment 5 as an experiment with known truth: a fictional world takes the place
of Wikipedia. Some people are in QA training, some in the text only, some are absent. A model that
learned to read its memory answers about those in the text; what it says of absent people is made
up, and the study measures which signal separates the two.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from regard.config import override
from regard.evaluation.evaluate import (
    Answer,
    Chosen,
    answer_questions,
    baseline_accuracy,
    choose_signal,
)
from regard.metrics import Interval, accuracy
from regard.runs.memory import peak_memory_mb
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.tasks.examples import majority_answer
from regard.tasks.world import QUESTIONS, World, WorldConfig, make_world
from regard.tasks.world_files import save_world
from regard.training.loop import ExecutionOptions
from regard.training.plan import plan_finetuning, plan_pretraining, plan_questions

Arms: TypeAlias = dict[str, Run]
PRETRAINED = "text and questions together"
FINETUNED = "text first, questions afterwards"
NOT_PRETRAINED = "questions only, no pretraining"
UNTRAINED = "untrained"
MAJORITY = "always the commonest place"
WORDINGS = tuple(wording.replace("{name}", "{}") for wording in QUESTIONS[1:])
"""The other wordings of the question, to see whether the answers agree."""


@dataclass(frozen=True, kw_only=True)
class Recall:
    """What the study found."""

    world: World
    arms: Arms
    """The models that are compared."""
    accuracies: dict[str, Interval]
    """Of each model, and of the commonest place, on people in the text only."""
    text_only: list[Answer]
    """What the pretrained model says of people in the text only."""
    absent: list[Answer]
    """What it says of absent people."""
    chosen: Chosen
    """The signal that separates the two."""
    seconds: float
    peak_memory_mb: float

    def figures(self) -> dict[str, float]:
        """The figures of the final table."""
        return {
            "held_out_accuracy": self.accuracies[PRETRAINED].value,
            "finetuned_accuracy": self.accuracies[FINETUNED].value,
            "no_pretraining_accuracy": self.accuracies[NOT_PRETRAINED].value,
            "untrained_accuracy": self.accuracies[UNTRAINED].value,
            "majority_accuracy": self.accuracies[MAJORITY].value,
            "auroc": self.chosen.auroc,
            "seconds": round(self.seconds, 1),
            "peak_memory_mb": round(self.peak_memory_mb, 1),
        }


def recall(out: Path, config: WorldConfig, recipe: Recipe, options: ExecutionOptions) -> Recall:
    """Run the study; the world and the runs are written below `out`."""
    started = time.perf_counter()
    world = make_world(config)
    save_world(world, out / "world")
    arms = _train_arms(out, world, recipe, options)

    questions = world.questions("text_only")
    text_only, absent = (
        answer_questions(arms[PRETRAINED], asked, options.environment, paraphrases=WORDINGS)
        for asked in (questions, world.questions("absent"))
    )
    others = {name: run for name, run in arms.items() if name != PRETRAINED}
    answers = {PRETRAINED: text_only} | {
        name: answer_questions(run, questions, options.environment) for name, run in others.items()
    }
    accuracies = {name: accuracy([a.correct for a in given]) for name, given in answers.items()}
    commonest = majority_answer(world.questions("qa_train"))
    return Recall(
        world=world,
        arms=arms,
        accuracies=accuracies | {MAJORITY: baseline_accuracy(questions, commonest)},
        text_only=text_only,
        absent=absent,
        chosen=choose_signal(text_only, absent, seed=recipe.seed),
        seconds=time.perf_counter() - started,
        peak_memory_mb=peak_memory_mb(),
    )


def _train_arms(out: Path, world: World, recipe: Recipe, options: ExecutionOptions) -> Arms:
    """Train the models that are compared; all are asked the same questions."""
    corpus, qa_train = world.documents, world.questions("qa_train", QUESTIONS)
    mixed = plan_pretraining(corpus, out / "pretrained", recipe, questions=qa_train)
    tokenizer = mixed.run.tokenizer
    untrained = Run.new(out / "untrained", recipe, tokenizer, {})
    untrained.model.to(options.environment.device).eval()
    mixed.execute(options)
    on_text = _text_only(recipe, mixed.sampler.steps)
    text = plan_pretraining(corpus, out / "text-only", on_text, tokenizer=tokenizer)
    text.execute(options)
    finetuned = plan_finetuning(text.run, qa_train, out / "finetuned", recipe)
    finetuned.execute(options)
    no_text = plan_questions(qa_train, out / "not-pretrained", recipe, tokenizer=tokenizer)
    no_text.execute(options)
    return {
        PRETRAINED: mixed.run,
        FINETUNED: finetuned.run,
        NOT_PRETRAINED: no_text.run,
        UNTRAINED: untrained,
    }


def _text_only(recipe: Recipe, steps: int) -> Recipe:
    """The same number of steps on text, and none on questions."""
    objective = recipe.objective
    share = 1 - objective.questions / objective.total
    settings = ["objective.questions=0", f"pretraining.steps={round(share * steps)}"]
    return override(recipe, settings)
