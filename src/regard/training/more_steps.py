"""Plans that continue the training of a finished run."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec

from regard.config import override
from regard.errors import UserError
from regard.runs.recipe import Recipe
from regard.runs.run import Run, load_weights
from regard.tasks.examples import Examples
from regard.text.corpus import Corpus
from regard.training.checkpoint import Checkpoint, require_checkpoint
from regard.training.plan import Plan, plan_training


def plan_more_steps(
    task: str,
    data: Corpus | Examples | None,
    out: str | Path,
    start: Run,
    more_steps: int,
    settings: Sequence[str],
    test: Path | None,
    mix: str | None = None,
) -> Plan:
    """Plan more steps of a finished run, for the same task and data, in a new folder.

    Training continues from the newest checkpoint of `start`: its weights, the state of its
    optimizers, and the next batch of its data. The learning-rate schedule is that of all steps.

    Raises:
        UserError: `start` isn't finished or has no checkpoint; task, data or a setting differs;
            or `out` is the folder of `start`.
    """
    if Path(out).resolve() == start.path.resolve():
        raise UserError(f"--out {out}: is the run to continue; choose another folder")
    checkpoint = require_checkpoint(start.path)
    _require_finished(start, checkpoint)
    _require_same_task(start, task)
    _require_unchanged(start, settings)
    done = checkpoint.progress.step
    recipe = _with_steps(start.recipe, done + more_steps)
    plan = plan_training(task, data, out=out, recipe=recipe, test=test, start=start, mix=mix)
    was, found = start.origin.get("fingerprint"), plan.run.origin["fingerprint"]
    if found != was:
        raise UserError(
            f"{start.path}/origin.json: fingerprint is {was}, not {found}: the data differs; give "
            "the data of the run, or leave --steps out and set training.steps"
        )
    load_weights(checkpoint.path / "model.safetensors", plan.run)
    facts = plan.facts | {"steps_before": done}
    return dataclasses.replace(plan, facts=facts, continued=start.path)


def _with_steps(recipe: Recipe, steps: int) -> Recipe:
    training = msgspec.structs.replace(recipe.training, epochs=None, steps=steps)
    return msgspec.structs.replace(recipe, training=training)


def _require_finished(start: Run, checkpoint: Checkpoint) -> None:
    progress, patience = checkpoint.progress, start.recipe.training.patience
    steps = start.origin.get("steps", 0)
    if progress.step < steps and not 0 < patience <= progress.checks_since_best:
        raise UserError(
            f"{start.path}: is unfinished, at step {progress.step} of {steps}; repeat its "
            "training command with --resume first"
        )


def _require_same_task(start: Run, task: str) -> None:
    stage = start.origin.get("stage")
    if stage != ("training" if task == "text" else task):
        raise UserError(
            f"{start.path}/origin.json: stage is {stage}: the task differs from `train {task}`; "
            "give the task of the run, or leave --steps out and set training.steps"
        )


def _require_unchanged(start: Run, settings: Sequence[str]) -> None:
    for setting in settings:
        if override(start.recipe, [setting]) != start.recipe:
            raise UserError(
                f"{setting}: --steps continues the training of {start.path} as it was; leave it "
                "out, or leave --steps out and set training.steps"
            )
