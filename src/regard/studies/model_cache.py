"""Trained models of studies, cached on disk."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
from filelock import FileLock

from regard.config import to_toml
from regard.environment import ExecutionEnvironment
from regard.files import cache_folder, fingerprint_of
from regard.runs.recipe import Recipe
from regard.runs.run import Run, load_weights
from regard.training.checkpoint import KEPT, checkpoint_weights
from regard.training.loop import ExecutionOptions
from regard.training.plan import Plan, plan_training
from regard.training.sources.choose import own_source

_PLACES = ("parent", "ancestors", "run_folder")
"""Facts of an origin that are places; `parent_weights` identifies the parent."""


def cached_run(plan: Plan) -> Run:
    """Return the plan's run, trained on the first call.

    The name of its folder is a hash of recipe and data, whatever path the plan has; an interrupted
    training is resumed. Training always uses float32, so that numbers are the same on every
    machine. A second process that needs the same run waits for the first.
    """
    return Run.load(_trained_folder(plan, checkpoints=False))


def trained(recipe: Recipe) -> Run:
    """Return the model that a task's recipe trains."""
    return cached_run(plan_training(own_source(recipe), recipe, "unused"))


def cached_checkpoints(plan: Plan) -> dict[int, Run]:
    """Return the run after each checkpoint of one training, by step; cached as by `cached_run`."""
    folder = _trained_folder(plan, checkpoints=True)
    runs = {}
    for step, weights in checkpoint_weights(folder).items():
        runs[step] = Run.load(folder)
        load_weights(weights, runs[step])
    return runs


def _trained_folder(plan: Plan, *, checkpoints: bool) -> Path:
    """Return the folder of the run, named by recipe, data and version; train it if missing."""
    run = plan.run
    origin = {name: fact for name, fact in run.origin.items() if name not in _PLACES}
    made_by = [to_toml(run.recipe), run.tokenizer.fingerprint, plan.title, origin]
    name = f"{run.origin.get('stage', 'run')}-{fingerprint_of(msgspec.json.encode(made_by))}"
    folder = cache_folder("studies") / (name + "-checkpoints" * checkpoints)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            _train(plan, folder, checkpoints=checkpoints)
    return folder


def _train(plan: Plan, folder: Path, *, checkpoints: bool) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    run = replace(plan.run, path=partial)
    environment = ExecutionEnvironment.choose("auto", "float32")
    kept = sys.maxsize if checkpoints else KEPT
    options = ExecutionOptions(environment=environment, quiet=True, kept_checkpoints=kept)
    replace(plan, run=run).execute(options, resume=True)
    partial.rename(folder)  # first: a training can't resume from a part of its checkpoints
    if not checkpoints:
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    for state in folder.glob("checkpoints/*/optimizer.safetensors"):
        state.unlink()
